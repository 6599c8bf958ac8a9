package config

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestReloadable(t *testing.T) {
	const base = "node: {name: a}\napi:\n  socket: /run/mover.sock\n"
	for _, c := range []struct {
		text string
		want []string
	}{
		{"", nil},
		{"# a comment", nil},
		{"peers: {b: {fingerprint: \"" + someFingerprint + "\"}}", nil},
		{"delegates: \"*\"", nil},
		{"roots: {data: {path: /srv/data, quota: 1GiB}}", nil},
		{"  tokens_file: /etc/tokens.yaml\n  tls_cert: /c.pem\n  tls_key: /k.pem", nil},
		{"  socket_users: {alice: {scope: read}}", nil},
		{"control: {ca: /etc/ca.pem}", nil},
		{"jobs: {bandwidth_limit: 1Gbit/s}", nil},
		{"pollers: {cpus: []}", nil},
		{"  listen: 127.0.0.1:1", []string{"api.listen"}},
		{"log: {level: debug}", []string{"log.level"}},
		{"control: {dial_timeout: 1s}", []string{"control.dial_timeout"}},
		{"buffers: {w: {bytes: 1MiB}}", []string{"buffers"}},
		{"pollers: {cpus: [1]}\nworkers: 3", []string{"pollers.cpus", "workers"}},
		{"jobs: {keep: 1d, bandwidth_limit: 1Gbit/s, max_running: 1}", []string{"jobs.max_running", "jobs.keep"}},
		{"memory: {arena: 1GiB}\nsoft: {addresses: [127.0.0.2]}", []string{"soft.addresses", "memory.arena"}},
	} {
		running, err := Parse("running", []byte(base))
		if err != nil {
			t.Fatal(err)
		}
		next, err := Parse("next", []byte(base+c.text))
		if err != nil {
			t.Fatalf("%q: %v", c.text, err)
		}
		if d := cmp.Diff(c.want, Reloadable(running, next)); d != "" {
			t.Errorf("%q: %s", c.text, d)
		}
		if d := cmp.Diff(c.want, Reloadable(next, running)); d != "" {
			t.Errorf("back from %q: %s", c.text, d)
		}
	}
}
