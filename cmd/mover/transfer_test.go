package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"mover/job"
)

// makeFile writes bytes that no other file or offset has.
func makeFile(t *testing.T, name string, size int) []byte {
	t.Helper()
	content := make([]byte, size)
	seed := [32]byte{}
	copy(seed[:], filepath.Base(name))
	if _, err := rand.NewChaCha8(seed).Read(content); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, content, 0o640); err != nil {
		t.Fatal(err)
	}
	return content
}

func wantContent(t *testing.T, name string, want []byte) {
	t.Helper()
	got, err := os.ReadFile(name)
	if err != nil {
		t.Error(err)
		return
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs: %d bytes, want %d", name, len(got), len(want))
	}
}

func TestOneFile(t *testing.T) {
	a, b := pair(t, "")
	// Around the boundaries of a block, a slot's payload and the slots at once.
	for _, size := range []int{0, 1, 4095, 4096, 256<<10 - 1, 256 << 10, 256<<10 + 1, 5<<20 + 7} {
		name := fmt.Sprintf("f%d", size)
		content := makeFile(t, a.path("data", name), size)
		s := a.ended(t, a.submit(t, name, "b", name))
		if s.State != job.Succeeded {
			t.Fatalf("%d bytes: %s, %+v", size, s.State, s.LastReason)
		}
		if r := s.Result; r == nil || !r.Verified || !r.Durable || r.Bytes != int64(size) {
			t.Errorf("%d bytes: result %+v", size, s.Result)
		}
		wantContent(t, b.path("incoming", name), content)
		wantContent(t, a.path("data", name), content)
	}

	status, _, metrics := a.call(t, http.MethodGet, "/metrics", "")
	for _, series := range []string{
		`mover_rail_sent_bytes_total{device="soft0",peer="b",port="1"} `, `mover_rail_received_bytes_total{device="soft0",peer="b",port="1"} `,
		`mover_rail_info{fallback="false",local_device="soft0",local_port="1",peer="b",provider="soft",remote_device="soft0",remote_port="1"} 1`,
		`mover_rail_lanes_up{device="soft0",peer="b",port="1"} `, `mover_build_info{go="go1.`, `version="v0.0.0-test"} 1`, "process_cpu_seconds_total ",
	} {
		if status != http.StatusOK || !strings.Contains(string(metrics), series) {
			t.Errorf("/metrics: %d, without %s", status, series)
		}
	}
	if strings.Contains(string(metrics), "process_network_") {
		t.Error("/metrics: figures of the whole network namespace as the process's own")
	}
	for path, wants := range map[string][]string{
		"/v1/peers": {`"state":"connected"`, `"since":"20`, `"provider":"soft","reason":"software verbs, as devices.providers asks"`, `"mtu_bytes":4096`},
		"/v1/devices": {`"name":"soft0","provider":"soft","used":true,"why":"devices.names is empty: all are used","software":true`, `"netdev":"lo"`,
			`"relaxed_ordering":false,"relaxed_ordering_reason":"the data path of soft0 is software`, `"state":"active","link_layer":"ethernet"`,
			`"gid_type":"soft","address":"127.0.0.1"`, `"mtu_bytes":4096`},
		"/v1/roots": {`"read":["*"]`, `"write":[]`},
	} {
		status, _, body := a.call(t, http.MethodGet, path, "")
		for _, want := range wants {
			if status != http.StatusOK || !strings.Contains(string(body), want) {
				t.Errorf("%s: %d, without %s: %s", path, status, want, body)
			}
		}
	}
	a.stop(t)
	b.stop(t)
	wantNoPartial(t, b.path("incoming"))
}

func wantNoPartial(t *testing.T, dir string) {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, ".mover*"))
	if err != nil || len(found) > 0 {
		t.Errorf("left behind: %v, %v", found, err)
	}
}

func TestCopyCommand(t *testing.T) {
	a, b := pair(t, "")
	content := makeFile(t, a.path("data", "model.bin"), 3<<20)
	server := serverArgs(a)

	// A local path, relative to the working directory; the name is appended.
	got := moverIn(t, a.path("data"), append([]string{"cp", "./model.bin", "b:incoming/"}, server...)...)
	got.want(t, exitOK, "succeeded: b:incoming/model.bin", "verified, durable, over software verbs", "100 %")
	if got.stdout != "" {
		t.Errorf("progress belongs to standard error: %q", got.stdout)
	}
	wantContent(t, b.path("incoming", "model.bin"), content)

	// The same place again: refused, and not touched.
	if err := os.WriteFile(b.path("incoming", "model.bin"), []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	mover(t, append([]string{"cp", "a:data/model.bin", "b:incoming/model.bin"}, server...)...).want(t, exitFailed, "DEST_EXISTS")
	wantContent(t, b.path("incoming", "model.bin"), []byte("precious"))
	mover(t, append([]string{"cp", "--overwrite", "skip", "a:data/model.bin", "b:incoming/model.bin"}, server...)...).want(t, exitOK, "skipped")
	wantContent(t, b.path("incoming", "model.bin"), []byte("precious"))
	mover(t, append([]string{"cp", "--overwrite=always", "a:data/model.bin", "b:incoming/model.bin"}, server...)...).want(t, exitOK)
	wantContent(t, b.path("incoming", "model.bin"), content)

	// Submitted and watched apart.
	id := mover(t, append([]string{"cp", "--detach", a.path("data", "model.bin"), "b:incoming/second.bin"}, server...)...)
	id.want(t, exitOK)
	mover(t, append([]string{"jobs", "get", strings.TrimSpace(id.stdout), "--wait"}, server...)...).want(t, exitOK, `"state": "succeeded"`)
	wantContent(t, b.path("incoming", "second.bin"), content)

	// And listed; what has ended cannot be canceled.
	mover(t, append([]string{"jobs", "list", "--state", "succeeded"}, server...)...).want(t, exitOK,
		strings.TrimSpace(id.stdout), "3.00 MiB of 3.00 MiB", "a:data/model.bin", "b:incoming/second.bin")
	mover(t, append([]string{"jobs", "list", "--limit", "1"}, server...)...).want(t, exitOK, "there are more")
	mover(t, append([]string{"jobs", "cancel", strings.TrimSpace(id.stdout)}, server...)...).want(t, exitFailed, "succeeded cannot become canceled")

	// Places that are wrong.
	outside := t.TempDir()
	mover(t, append([]string{"cp", outside + "/x", "b:incoming/"}, server...)...).want(t, exitUsage, "is in none of the node's roots", "data = "+a.path("data"))
	mover(t, append([]string{"cp", "data/model.bin", "b:incoming/"}, server...)...).want(t, exitUsage, "did you mean a:data/model.bin?")
	mover(t, append([]string{"cp", "a:data/model.bin", "b:/srv/incoming/"}, server...)...).want(t, exitUsage, "not an absolute path")
	mover(t, append([]string{"cp", "a:nothere/model.bin", "b:incoming/"}, server...)...).want(t, exitFailed)
	mover(t, "cp", "--server", "https://192.0.2.1:9470", "--token-file", a.path("state", "token"), "./x", "b:incoming/").want(t, exitUsage, "is on another")
	a.stop(t)
	b.stop(t)
	wantNoPartial(t, b.path("incoming"))
}
