package main

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestFirstRunAndStop(t *testing.T) {
	n := newNode(t, "a")
	n.configure(t, "")
	n.start(t)
	onlyOwner(t, n.path("state"))
	for _, said := range []string{n.path("state", "token"), n.path("state", "identity"), "soft"} {
		// The log comes through a pipe, later than the answer over HTTP.
		within(t, jobLimit, "the log does not mention "+said, func() bool { return strings.Contains(n.log.String(), said) })
	}
	token := n.token(t)
	if strings.Contains(n.log.String(), token) {
		t.Error("the token itself is in the log")
	}
	if hashes, err := os.ReadFile(n.path("state", "tokens.yaml")); err != nil || strings.Contains(string(hashes), token) {
		t.Errorf("tokens.yaml: %v, or the token itself is in it", err)
	}

	// Authentication is never optional, but for health.
	for path, want := range map[string]int{"/healthz": 200, "/readyz": 200, "/v1/jobs/x": 401, "/metrics": 401, "/v1/roots": 401} {
		response, err := http.Get("http://" + n.api + path)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != want {
			t.Errorf("%s without a token: %d, want %d", path, response.StatusCode, want)
		}
	}
	mover(t, "doctor", "--config", n.config()).want(t, exitOK, "a node is running here")

	fingerprint := n.fingerprint(t)
	n.stop(t)
	if _, err := net.Dial("tcp", n.api); err == nil {
		t.Error("something still listens on the API's port")
	}
	wantEmpty(t, n.path("incoming"))

	// The second start finds what the first made.
	n.start(t)
	if n.token(t) != token || n.fingerprint(t) != fingerprint {
		t.Error("the second start made a new token or identity")
	}
	n.stop(t)
}

func TestPortInUse(t *testing.T) {
	n := newNode(t, "a")
	n.configure(t, "")
	taken, err := net.Listen("tcp", n.api)
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	mover(t, "run", "--config", n.config()).want(t, exitFailed, n.api, "in use")
}

func TestMissingRootDirectory(t *testing.T) {
	n := newNode(t, "a")
	n.configure(t, "")
	if err := os.Remove(n.path("data")); err != nil {
		t.Fatal(err)
	}
	mover(t, "run", "--config", n.config()).want(t, exitFailed, n.path("data"))
}

func TestTokenNew(t *testing.T) {
	n := newNode(t, "a")
	n.configure(t, "")
	first := mover(t, "token", "new", "--config", n.config(), "--name", "reader", "--scope", "read", "--root", "a:data")
	first.want(t, exitOK)
	token := strings.TrimSpace(first.stdout)
	if token == "" || strings.ContainsAny(token, " \n") {
		t.Fatalf("stdout is not the token alone: %q", first.stdout)
	}
	onlyOwner(t, n.path("state"))
	mover(t, "token", "new", "--config", n.config(), "--name", "reader", "--scope", "read").want(t, exitFailed, "a token with this name exists")
	mover(t, "token", "new", "--config", n.config(), "--name", "x", "--scope", "root").want(t, exitUsage, "allowed: metrics, read, submit, admin")
	mover(t, "token", "new", "--config", n.config(), "--scope", "read").want(t, exitUsage, "--name")

	first.want(t, exitOK, "a SIGHUP or a restart")
	mover(t, "token", "new", "--config", n.config(), "--name", "y", "--scope", "read", "--read", "data").want(t, exitUsage, "NODE:root")

	n.start(t)
	own := filepath.Join(n.dir, "own-token")
	writeFile(t, own, token+"\n")
	id := "018f3b2e-0000-7000-8000-000000000000"
	server := "http://" + n.api
	mover(t, "jobs", "get", id, "--server", server, "--token-file", own).want(t, exitFailed, "not_found")
	mover(t, "cp", "--server", server, "--token-file", own, "a:data/x", "a:incoming/x").want(t, exitUnreachable)
	wrong := writeFile(t, filepath.Join(n.dir, "wrong"), "nonsense\n")
	mover(t, "jobs", "get", id, "--server", server, "--token-file", wrong).want(t, exitUnreachable, "token")
	mover(t, "jobs", "get", id, "--server", server, "--token-file", n.path("none")).want(t, exitUsage, n.path("none"))
	n.stop(t)
	mover(t, "jobs", "get", id, "--server", server, "--token-file", own).want(t, exitUnreachable, n.api, "mover run")
}

// wantEmpty checks that nothing, not even a partial file, is in dir.
func wantEmpty(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		t.Errorf("%s was left in %s", e.Name(), dir)
	}
}

func serverArgs(n *testNode) []string {
	return []string{"--server", fmt.Sprintf("http://%s", n.api), "--token-file", n.path("state", "token")}
}
