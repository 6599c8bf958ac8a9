package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestFindPort(t *testing.T) {
	class := t.TempDir()
	for device, name := range map[string]string{"vport0p0": "console\n", "vport1p1": "lab\n"} {
		dir := filepath.Join(class, device)
		if err := errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(filepath.Join(dir, "name"), []byte(name), 0o444)); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := findPort(class, "lab"); err != nil || got != "/dev/vport1p1" {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := findPort(class, "la"); err == nil {
		t.Errorf("a port of another name: %s", got)
	}
}

func TestPoll(t *testing.T) {
	tries := 0
	err := poll(t.Context(), func() error {
		if tries++; tries < 3 {
			return errors.New("not yet")
		}
		return nil
	})
	if err != nil || tries != 3 {
		t.Errorf("%v after %d tries", err, tries)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	never := errors.New("never")
	if err := poll(ctx, func() error { return never }); !errors.Is(err, never) {
		t.Errorf("%v", err)
	}
}
