package main

import "testing"

func TestNearest(t *testing.T) {
	names := []string{"run", "cp", "jobs", "devices", "doctor", "config", "identity", "token", "bench", "version", "c"}
	for word, want := range map[string]string{
		"runn": "run", "rnu": "run", "job": "jobs", "device": "devices", "dcotor": "doctor", "verison": "version", "cpp": "cp",
		"start": "", "delete": "", "send": "", "x": "", "": "", "help": "", "copy": "", "cancel": "",
	} {
		if got := nearest(word, names); got != want {
			t.Errorf("%s: %q, want %q", word, got, want)
		}
	}
}
