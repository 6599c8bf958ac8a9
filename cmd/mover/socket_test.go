package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestNodeOverItsSocket goes with a real node through what takes neither a
// server nor a token on its own host: buffers filled, copied and read back; a
// root that a reload brings; a drain.
func TestNodeOverItsSocket(t *testing.T) {
	n := newNode(t, fmt.Sprintf("sock-%d", os.Getpid())) // its buffers' files have its name
	t.Cleanup(func() {
		left, _ := filepath.Glob("/dev/shm/mover." + n.name + ".*")
		for _, file := range left {
			os.Remove(file)
		}
	})
	n.configure(t, "buffers: {w: {bytes: 1MiB, read: [\"*\"], write: [\"*\"]}}\n")
	n.start(t)
	t.Setenv("MOVER_CONFIG", n.config())
	mover(t, "healthz", "--ready").want(t, exitOK)

	content := bytes.Repeat([]byte("0123456789abcdef"), 4096) // 64 KiB
	in := writeFile(t, n.path("data", "file"), string(content))
	mover(t, "cp", in, n.name+":buffer:w+4KiB").want(t, exitOK, "succeeded: "+n.name+":buffer:w+4096")
	out := filepath.Join(t.TempDir(), "out")
	mover(t, "buffers", "get", "w", out, "--offset", "4KiB", "--length", "64KiB").want(t, exitOK)
	if got, err := os.ReadFile(out); err != nil || !bytes.Equal(got, content) {
		t.Errorf("%d bytes came back, %v; want those of the file", len(got), err)
	}
	mover(t, "buffers", "get", "w", out).want(t, exitUsage, "exists; choose another name")
	mover(t, "buffers", "create", "tmp", "--size", "64KiB", "--read", n.name).want(t, exitOK, `"page_bytes"`)
	mover(t, "buffers", "put", "tmp", in).want(t, exitOK, "64.0 KiB at offset 0")
	mover(t, "cp", n.name+":buffer:tmp", n.name+":incoming/tmp").want(t, exitOK, "succeeded")
	if got, err := os.ReadFile(n.path("incoming", "tmp")); err != nil || !bytes.Equal(got, content) {
		t.Errorf("the buffer's file has %d bytes, %v", len(got), err)
	}
	mover(t, "buffers", "rm", "tmp").want(t, exitOK)
	mover(t, "buffers", "show", "tmp").want(t, exitFailed, "not_found")
	mover(t, "buffers", "rm", "w").want(t, exitFailed, "buffer_configured")

	if err := os.Mkdir(n.path("late"), 0o755); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(n.config())
	if err != nil {
		t.Fatal(err)
	}
	root := fmt.Sprintf("roots:\n  late: {path: %q, write: [\"*\"]}\n", n.path("late"))
	writeFile(t, n.config(), strings.Replace(string(text), "roots:\n", "workers: 3\n"+root, 1))
	if err := n.process.Process.Signal(unix.SIGHUP); err != nil {
		t.Fatal(err)
	}
	within(t, 20*time.Second, "nothing was reloaded", func() bool { return strings.Contains(n.log.String(), "msg=reloaded") })
	if !strings.Contains(n.log.String(), "settings=workers") {
		t.Error("the log does not say that workers waits for a restart")
	}
	mover(t, "cp", in, n.path("late")+"/").want(t, exitOK, "succeeded: "+n.name+":late/file")

	mover(t, "drain", "--wait").want(t, exitOK, "drained: nothing runs; 0 jobs queued")
	mover(t, "healthz").want(t, exitOK)
	mover(t, "healthz", "--ready").want(t, exitFailed, "status 503")
	mover(t, "drain", "--undo").want(t, exitOK, "takes jobs")
	mover(t, "plan", in, n.path("late")+"/").want(t, exitFailed, "DEST_EXISTS")
	n.stop(t)
	if _, err := os.Lstat(n.path("state", "mover.sock")); !os.IsNotExist(err) {
		t.Errorf("the socket is left behind: %v", err)
	}
}
