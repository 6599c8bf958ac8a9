package node

import (
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"

	"mover/node/config"
)

// TestStateLock: one process a state directory, and the error says which.
func TestStateLock(t *testing.T) {
	dir := t.TempDir()
	l, err := lockState(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lockState(dir); err == nil || !strings.Contains(err.Error(), fmt.Sprint(os.Getpid())) {
		t.Errorf("got %v, want the holder's process id", err)
	}
	l.release()
	l, err = lockState(dir)
	if err != nil {
		t.Errorf("after its release: %v", err)
	}
	l.release()
}

// TestFailedStartReleasesState: a start that fails leaves the directory to the
// next one, in the same process too.
func TestFailedStartReleasesState(t *testing.T) {
	cfg := config.Default()
	cfg.Node.Name, cfg.Node.StateDir = "a", t.TempDir()
	cfg.API.TokensFile = cfg.Node.StateDir + "/tokens.yaml"
	cfg.Roots = map[string]config.Root{"gone": {Path: "/nonexistent"}}
	for range 2 {
		if _, err := New(cfg, "test", slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "roots.gone") {
			t.Fatalf("got %v, want the missing root", err)
		}
	}
}
