package main

import (
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestReloadOfAccess: a SIGHUP takes over another file of tokens and other users
// of the socket, for both say who may come in.
func TestReloadOfAccess(t *testing.T) {
	n := newNode(t, "a")
	n.configure(t, "")
	open := t.TempDir()
	if err := os.Chmod(filepath.Dir(open), 0o755); err != nil { // other users find the socket in it
		t.Fatal(err)
	}
	socket := filepath.Join(open, "s")
	access := func(more string) {
		t.Helper()
		n.configure(t, "")
		text, err := os.ReadFile(n.config())
		if err != nil {
			t.Fatal(err)
		}
		writeFile(t, n.config(), strings.Replace(string(text), "api: {", "api: {socket: "+socket+", "+more, 1))
	}
	access("")
	n.start(t)
	first := n.token(t)
	other := writeFile(t, n.path("other.yaml"), "node: {name: a}\napi: {tokens_file: "+n.path("late.yaml")+"}\n")
	made := mover(t, "token", "new", "--name", "late", "--scope", "read", "--config", other)
	made.want(t, exitOK, "mvr_")
	late := strings.TrimSpace(made.stdout)
	withToken := func(token string) int { return status(t, http.DefaultTransport, "http://"+n.api+"/v1/jobs", token) }
	if a, b := withToken(first), withToken(late); a != 200 || b != 401 {
		t.Fatalf("before: %d with the first token, %d with the other file's", a, b)
	}
	root := os.Geteuid() == 0 // only root can become another user
	asUser := func() int {
		return status(t, &http.Transport{DisableKeepAlives: true, DialContext: func(context.Context, string, string) (net.Conn, error) { return dialAs(70001, socket) }}, "http://mover/v1/jobs", "")
	}
	if root && asUser() != 403 {
		t.Error("a user that is not listed may use the socket")
	}
	access("tokens_file: " + n.path("late.yaml") + ", socket_users: {\"70001\": {scope: read}}, ")
	if err := n.process.Process.Signal(unix.SIGHUP); err != nil {
		t.Fatal(err)
	}
	within(t, 20*time.Second, "nothing was reloaded", func() bool { return strings.Contains(n.log.String(), "msg=reloaded") })
	if a, b := withToken(first), withToken(late); a != 401 || b != 200 {
		t.Errorf("after: %d with the first token, %d with the other file's", a, b)
	}
	if root {
		if got := asUser(); got != 200 {
			t.Errorf("a user that is listed now: %d", got)
		}
	}
	n.stop(t)
}

// status is what a GET is answered with.
func status(t *testing.T, transport http.RoundTripper, address, token string) int {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	return response.StatusCode
}

// dialAs connects as another user: credentials belong to a thread, which ends
// with its goroutine since it is never unlocked.
func dialAs(uid int, path string) (net.Conn, error) {
	type result struct {
		conn net.Conn
		err  error
	}
	ch := make(chan result)
	go func() {
		runtime.LockOSThread()
		keep := ^uintptr(0)
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, keep, uintptr(uid), keep); errno != 0 {
			ch <- result{nil, errno}
			return
		}
		conn, err := net.Dial("unix", path)
		ch <- result{conn, err}
	}()
	r := <-ch
	return r.conn, r.err
}
