package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// binary is the mover that the tests run: built once, with the race detector
// if the tests have it.
var binary string

func TestMain(m *testing.M) {
	os.Exit(withBinary(m.Run))
}

func withBinary(f func() int) int {
	dir, err := os.MkdirTemp("", "mover-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "mover")
	args := []string{"build", "-buildvcs=false", "-ldflags", "-X main.version=v0.0.0-test", "-o", binary}
	if raceDetector {
		args = append(args, "-race")
	}
	if out, err := exec.Command("go", append(args, ".")...).CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "building mover: %v\n%s", err, out)
		return 1
	}
	// The race detector makes every process sleep for a second at its end, to
	// let others report; a process that has ended its goroutines needs none.
	os.Setenv("GORACE", strings.TrimSpace(os.Getenv("GORACE")+" atexit_sleep_ms=0"))
	// Nothing of who runs the tests.
	for _, name := range []string{"MOVER_SERVER", "MOVER_TOKEN_FILE", "MOVER_CA", "MOVER_CONFIG"} {
		os.Unsetenv(name)
	}
	return f()
}

// ended is how a command ended.
type ended struct {
	code           int
	stdout, stderr string
}

// commandLimit bounds every command of a test; none should come near it.
const commandLimit = 2 * time.Minute

// mover runs the binary to its end.
func mover(t *testing.T, args ...string) ended {
	t.Helper()
	return moverIn(t, "", args...)
}

func moverIn(t *testing.T, dir string, args ...string) ended {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), commandLimit)
	defer cancel()
	c := exec.CommandContext(ctx, binary, args...)
	c.Dir = dir
	var stdout, stderr bytes.Buffer
	c.Stdout, c.Stderr = &stdout, &stderr
	err := c.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if ctx.Err() != nil {
		t.Fatalf("mover %s did not end within %v\n%s", strings.Join(args, " "), commandLimit, stderr.String())
	}
	return ended{c.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// want checks the exit code and that both outputs together contain texts, and
// that no error is a stack trace.
func (e ended) want(t *testing.T, code int, texts ...string) {
	t.Helper()
	all := e.stdout + e.stderr
	if e.code != code {
		t.Errorf("exit code %d, want %d\n%s", e.code, code, all)
	}
	for _, text := range texts {
		if !strings.Contains(all, text) {
			t.Errorf("%q is missing in:\n%s", text, all)
		}
	}
	if strings.Contains(all, "goroutine ") || strings.Contains(all, "panic:") || strings.Contains(all, "DATA RACE") {
		t.Errorf("a stack trace:\n%s", all)
	}
}

func writeFile(t *testing.T, name, text string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}
