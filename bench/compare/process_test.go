package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestRunClient(t *testing.T) {
	out, err := runClient(t.Context(), clientDeadline, []string{"WORD=hello"}, "sh", "-c", `echo "$WORD"`)
	if err != nil || string(out) != "hello\n" {
		t.Errorf("got %q, %v", out, err)
	}
	_, err = runClient(t.Context(), clientDeadline, nil, "sh", "-c", "echo reason >&2; exit 3")
	if err == nil || !strings.Contains(err.Error(), "reason") || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("a failure says %v", err)
	}
	_, err = runClient(t.Context(), 50*time.Millisecond, nil, "sleep", "600")
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a client that hangs gives %v", err)
	}
}

// TestStopEndsTheGroup checks that a daemon's children end with it.
func TestStopEndsTheGroup(t *testing.T) {
	child := filepath.Join(t.TempDir(), "child")
	// The child closes the pipes, so that only the process group ties it to
	// the daemon, and ignores SIGTERM.
	d, err := startDaemon("test daemon", nil, "sh", "-c",
		`(trap "" TERM; echo started > "$0.tmp"; exec sleep 600) >/dev/null 2>&1 & echo $! > "$0"; wait`, child)
	if err != nil {
		t.Fatal(err)
	}
	var pid int
	err = d.awaitReady(t.Context(), func(context.Context) error {
		if _, err := os.Stat(child + ".tmp"); err != nil {
			return err
		}
		data, err := os.ReadFile(child)
		if err == nil {
			pid, err = strconv.Atoi(strings.TrimSpace(string(data)))
		}
		return err
	})
	if err != nil {
		t.Fatal(errors.Join(err, d.stop()))
	}
	if err := syscall.Kill(pid, 0); err != nil {
		t.Fatalf("the child is not there: %v", err)
	}
	if err := d.stop(); err != nil {
		t.Error(err)
	}
	// It is gone, or dead and waiting for init to reap it.
	deadline := time.Now().Add(10 * time.Second)
	for !dead(pid) {
		if time.Now().After(deadline) {
			t.Fatalf("the daemon's child %d lives on", pid)
		}
		time.Sleep(5 * time.Millisecond)
	}
	if err := d.stop(); err != nil {
		t.Errorf("stopping twice: %v", err)
	}
}

func dead(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return true
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(after, "Z") || strings.HasPrefix(after, "X")
}

func TestDaemonThatEndsWhileStarting(t *testing.T) {
	d, err := startDaemon("test daemon", nil, "sh", "-c", "echo port is taken; exit 1")
	if err != nil {
		t.Fatal(err)
	}
	err = d.awaitReady(t.Context(), func(context.Context) error { return errors.New("not yet") })
	if err == nil || !strings.Contains(err.Error(), "port is taken") {
		t.Errorf("got %v", err)
	}
	if err := d.stop(); err != nil {
		t.Error(err)
	}
}

func TestMissingToolSaysWhatToInstall(t *testing.T) {
	_, err := lookTool("no-such-program-here", "some-package")
	if err == nil || !strings.Contains(err.Error(), "apt-get install some-package") {
		t.Errorf("got %v", err)
	}
}
