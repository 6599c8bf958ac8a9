package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
)

const asAsked = `{"durable":true,"verified":true}`

// jobServer answers as a node does: 202, then the states in order, with the
// result given.
func jobServer(t *testing.T, result string, states ...string) (*jobClient, *jobRequest) {
	t.Helper()
	var got jobRequest
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/jobs", func(w http.ResponseWriter, r *http.Request) {
		if err := json.NewDecoder(r.Body).Decode(&got); err != nil {
			t.Error(err)
		}
		w.WriteHeader(http.StatusAccepted)
		fmt.Fprint(w, `{"id":"j1","state":"queued"}`)
	})
	mux.HandleFunc("GET /v1/jobs/j1", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("wait") != longPoll {
			t.Errorf("polled without waiting: %s", r.URL)
		}
		fmt.Fprintf(w, `{"id":"j1","state":%q,"last_reason":"NO_SPACE","result":%s}`, states[0], result)
		if len(states) > 1 {
			states = states[1:]
		}
	})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer secret" {
			http.Error(w, "who are you", http.StatusUnauthorized)
			return
		}
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	client := server.Client()
	t.Cleanup(client.CloseIdleConnections)
	return &jobClient{base: server.URL, token: "secret", http: client}, &got
}

func TestJobSucceeds(t *testing.T) {
	c, got := jobServer(t, asAsked, "queued", "running", "succeeded")
	want := jobRequest{Source: jobPlace{Path: "data/file2g"}, Destination: jobPlace{Node: "b", Path: "incoming/x"}, Verify: "crc32c", Durable: true}
	if err := c.run(t.Context(), want); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, *got); diff != "" {
		t.Errorf("the job the server saw (-want +got):\n%s", diff)
	}
}

func TestJobThatIsNotAsAsked(t *testing.T) {
	asked := jobRequest{Verify: "crc32c", Durable: true}
	for _, result := range []string{`{"durable":false,"verified":true}`, `{"durable":true,"verified":false}`, "null"} {
		c, _ := jobServer(t, result, "succeeded")
		if err := c.run(t.Context(), asked); err == nil || !strings.Contains(err.Error(), "as asked") {
			t.Errorf("result %s: %v", result, err)
		}
	}
}

func TestJobThatEndsOtherwise(t *testing.T) {
	for _, state := range []string{"failed", "partial", "canceled", "expired"} {
		c, _ := jobServer(t, "null", "running", state)
		err := c.run(t.Context(), jobRequest{})
		if err == nil || !strings.Contains(err.Error(), state) || !strings.Contains(err.Error(), "NO_SPACE") {
			t.Errorf("%s: %v", state, err)
		}
	}
	c, _ := jobServer(t, asAsked, "succeeded")
	c.token = "wrong"
	if err := c.run(t.Context(), jobRequest{}); err == nil || !strings.Contains(err.Error(), "401") {
		t.Errorf("a wrong token: %v", err)
	}
}

// TestBinaryMemory runs a script in place of mover and checks the command line
// it is given.
func TestBinaryMemory(t *testing.T) {
	script := filepath.Join(t.TempDir(), "mover")
	text := `#!/bin/sh
[ "$*" = "bench mem -seconds 2 -verify none -json" ] || { echo "called with $*" >&2; exit 1; }
echo '{"gbit_per_s":8,"bytes":2000000000,"seconds":2,"verify":"none","rss_bytes_source":6,"rss_bytes_destination":7,"arena_bytes":5}'
`
	if err := os.WriteFile(script, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	b := &binary{path: script}
	r, err := b.Memory(t.Context(), "none", 2)
	if err != nil || r.GbitPerSecond != 8 || r.RSSBytesSource != 6 {
		t.Errorf("got %+v, %v", r, err)
	}
	if _, err := b.Memory(t.Context(), "none", 3); err == nil || !strings.Contains(err.Error(), "called with") {
		t.Errorf("a failure does not say what the program said: %v", err)
	}
}

func TestNodeConfig(t *testing.T) {
	dir := t.TempDir()
	p := &place{kind: onTmpfs, dir: "/place"}
	a := nodeSetup{name: sourceNode, stateDir: filepath.Join(dir, "a"), apiPort: 1, controlPort: 2, fingerprint: "sha256:aa"}
	b := nodeSetup{name: destinationNode, stateDir: filepath.Join(dir, "b"), apiPort: 3, controlPort: 4, fingerprint: "sha256:bb"}
	if err := writeNodeConfig(a, &b, p); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(a.configFile())
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := yaml.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"node":    map[string]any{"name": "a", "state_dir": a.stateDir},
		"log":     map[string]any{"level": "warn"},
		"api":     map[string]any{"listen": "127.0.0.1:1"},
		"control": map[string]any{"listen": []any{"127.0.0.1:2"}},
		"memory":  map[string]any{"arena": "512MiB"},
		"devices": map[string]any{"providers": []any{"soft"}},
		"soft":    map[string]any{"addresses": []any{"127.0.0.1", "127.0.0.2"}},
		"workers": 1,
		"pollers": map[string]any{"spin": "5us"},
		"peers":   map[string]any{"b": map[string]any{"addresses": []any{"127.0.0.1:4"}, "fingerprint": "sha256:bb"}},
		"roots":   map[string]any{"data": map[string]any{"path": "/place/data", "read": []any{"b"}}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("configuration of a (-want +got):\n%s", diff)
	}
}
