package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"mover/job"
	"mover/reason"
)

// submitJob submits a job as it is and returns its ID.
func (n *testNode) submitJob(t *testing.T, spec map[string]any) string {
	t.Helper()
	body, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	status, _, answer := n.call(t, http.MethodPost, "/v1/jobs", string(body))
	if status != http.StatusAccepted {
		t.Fatalf("submit %s: %d %s", body, status, answer)
	}
	return decodeJob(t, answer).ID.String()
}

// oddTree makes a directory with everything that a tree can have.
func oddTree(t *testing.T, top string) {
	t.Helper()
	make := func(rel string, size int) {
		name := filepath.Join(top, rel)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		data := bytes.Repeat([]byte(rel+"\x00"), size/(len(rel)+1)+1)[:size]
		if err := os.WriteFile(name, data, 0o640); err != nil {
			t.Fatal(err)
		}
	}
	for i, size := range []int{0, 1, 4095, 4096, 4097, 65535, 65536, 256 << 10, 256<<10 + 1, 1<<20 + 7} {
		make(fmt.Sprintf("sizes/%d", i), size)
	}
	for i := range 700 { // more than a group's entries
		make(fmt.Sprintf("many/%03d/f", i), i)
	}
	make("odd/a\nb\x1b[2J\xff", 10)
	make("odd/"+strings.Repeat("n", 255), 10)
	make("odd/Case", 1)
	make("odd/case", 2)
	make("deep/"+strings.Repeat("d/", 100)+"f", 3)
	for link, to := range map[string]string{"odd/link": "case", "odd/outside": "/etc/passwd", "odd/dangling": "nowhere", "linkdir": "odd"} {
		if err := os.Symlink(to, filepath.Join(top, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Link(filepath.Join(top, "odd/case"), filepath.Join(top, "odd/hard")); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(top, "empty/below"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(top, "sizes/3"), 0o600); err != nil {
		t.Fatal(err)
	}
	long := time.Date(2001, 2, 3, 4, 5, 6, 789, time.UTC)
	for _, rel := range []string{"sizes/1", "empty/below", "odd", "."} {
		if err := os.Chtimes(filepath.Join(top, rel), long, long); err != nil {
			t.Fatal(err)
		}
	}
}

// listing is what a tree has, by path: kind, mode, time and content.
func listing(t *testing.T, top string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(top, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(top, name)
		text := fmt.Sprintf("%v", info.Mode())
		switch {
		case info.Mode()&fs.ModeSymlink != 0:
			to, err := os.Readlink(name)
			if err != nil {
				return err
			}
			text += " -> " + to
		default:
			text += " " + info.ModTime().UTC().String()
		}
		if info.Mode().IsRegular() {
			text += " " + sha256File(t, name)
		}
		out[rel] = text
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func sameTree(t *testing.T, want, got string) {
	t.Helper()
	w, g := listing(t, want), listing(t, got)
	for rel, text := range w {
		if g[rel] != text {
			t.Errorf("%q is %q, want %q", rel, g[rel], text)
		}
	}
	for rel := range g {
		if _, ok := w[rel]; !ok {
			t.Errorf("%q should not be there", rel)
		}
	}
}

// TestTree moves a tree of everything, and within the node; again, where it
// exists under each policy; and a part of it.
func TestTree(t *testing.T) {
	a, b := pair(t, "")
	oddTree(t, a.path("data", "tree"))
	entries := int64(len(listing(t, a.path("data", "tree"))))
	move := func(node, to string, more map[string]any) job.Snapshot {
		spec := map[string]any{"source": map[string]string{"path": "data/tree"}, "recursive": true,
			"destination": map[string]string{"node": node, "path": "incoming/" + to}}
		for k, v := range more {
			spec[k] = v
		}
		return a.ended(t, a.submitJob(t, spec))
	}
	for _, c := range []struct {
		node string
		at   *testNode
	}{{"b", b}, {"a", a}} {
		s := move(c.node, "tree", nil)
		if s.State != job.Succeeded || s.Result.Items != entries || s.Result.ItemsFailed != 0 || !s.Result.Durable ||
			s.Progress.ItemsDone != entries || s.Progress.BytesDone != s.Progress.BytesTotal || s.Result.Bytes != s.Progress.BytesTotal {
			t.Fatalf("to %s: %s, %+v, result %+v, progress %+v, want %d items", c.node, s.State, s.LastReason, s.Result, s.Progress, entries)
		}
		sameTree(t, a.path("data", "tree"), c.at.path("incoming", "tree"))
		noPartials(t, c.at.path("incoming"))

		s = move(c.node, "tree", nil)
		wantReason(t, s, job.Failed, string(reason.DestExists))
		for policy, skipped := range map[string]bool{"skip": true, "if_newer": true, "if_different": true, "always": false} {
			s = move(c.node, "tree", map[string]any{"overwrite": policy})
			if s.State != job.Succeeded || (s.Result.ItemsSkipped > 700) != skipped || s.Result.Items+s.Result.ItemsSkipped != entries {
				t.Errorf("to %s, %s: %s, %+v, %+v", c.node, policy, s.State, s.LastReason, s.Result)
			}
			sameTree(t, a.path("data", "tree"), c.at.path("incoming", "tree"))
		}
		s = move(c.node, "part", map[string]any{"include": []string{"/sizes/", "*/link"}, "exclude": []string{"[5-9]"}, "preserve": []string{"mode", "mtime", "hardlinks"}})
		if s.State != job.Succeeded {
			t.Errorf("a part: %s, %+v", s.State, s.LastReason)
		}
		got := listing(t, c.at.path("incoming", "part"))
		if _, ok := got["sizes/4"]; !ok || got["sizes/5"] != "" || got["odd/link"] == "" || got["many"] != "" {
			t.Errorf("a part has %v", got)
		}
	}
	s := move("b", "linked", map[string]any{"preserve": []string{"mode", "mtime", "hardlinks"}})
	one, err1 := os.Stat(b.path("incoming", "linked", "odd", "case"))
	two, err2 := os.Stat(b.path("incoming", "linked", "odd", "hard"))
	if s.State != job.Succeeded || err1 != nil || err2 != nil || !os.SameFile(one, two) {
		t.Errorf("hard links: %s %+v, %v, %v", s.State, s.LastReason, err1, err2)
	}
	sameTree(t, a.path("data", "tree"), b.path("incoming", "linked"))
}

// TestTreeWithBadEntries: what can't be moved ends the job, or is left out of
// it, as it was asked; the reason is by the entry.
func TestTreeWithBadEntries(t *testing.T) {
	a, b := pair(t, "")
	top := a.path("data", "tree")
	oddTree(t, top)
	if err := unix.Mkfifo(filepath.Join(top, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(b.path("incoming", "tree", "sizes", "0"), 0o755); err != nil {
		t.Fatal(err)
	}
	spec := map[string]any{"source": map[string]string{"path": "data/tree"}, "recursive": true,
		"destination": map[string]string{"node": "b", "path": "incoming/tree"}}
	s := a.ended(t, a.submitJob(t, spec))
	wantReason(t, s, job.Failed, string(reason.UnsupportedFileType), string(reason.DestExists))
	spec["on_error"], spec["overwrite"] = "continue", "always"
	id := a.submitJob(t, spec)
	s = a.ended(t, id)
	if s.State != job.Partial || s.Result.ItemsFailed != 2 {
		t.Fatalf("%s, %+v, %+v", s.State, s.LastReason, s.Result)
	}
	_, _, text := a.call(t, http.MethodGet, "/v1/jobs/"+id+"/items?state=failed", "")
	for _, want := range []string{`"fifo"`, `"sizes/0"`, string(reason.UnsupportedFileType), string(reason.DestExists)} {
		if !bytes.Contains(text, []byte(want)) {
			t.Errorf("items have no %s: %s", want, text)
		}
	}
	if sha256File(t, filepath.Join(top, "sizes/9")) != sha256File(t, b.path("incoming", "tree", "sizes", "9")) {
		t.Error("the rest is not the same")
	}
	// Onto itself, and into itself.
	for _, to := range []string{"loop", "loop/below"} {
		if err := os.MkdirAll(a.path("incoming", "loop"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(a.path("incoming", "loop", "f"), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.RemoveAll(a.path("data", "same")); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("../incoming/loop", a.path("data", "same")); err != nil {
			t.Fatal(err)
		}
		s := a.ended(t, a.submitJob(t, map[string]any{"source": map[string]string{"path": "data/same"}, "recursive": true, "overwrite": "always",
			"destination": map[string]string{"path": "incoming/" + to}}))
		if s.State != job.Failed {
			t.Errorf("to %s: %s", to, s.State)
		}
	}
}

// TestBuffers moves between buffers, files and back, in whole pages and not.
func TestBuffers(t *testing.T) {
	a, b := pair(t, "")
	const size = 5<<20 + 4096
	data := make([]byte, size)
	for i := range data {
		data[i] = byte(i * 7 >> 3)
	}
	for _, n := range []*testNode{a, b} {
		status, _, text := n.call(t, http.MethodPut, "/v1/buffers/mem", fmt.Sprintf(`{"bytes": "%dB", "read": ["*"], "write": ["*"]}`, size))
		if status != http.StatusCreated {
			t.Fatalf("create: %d %s", status, text)
		}
		t.Cleanup(func() { os.Remove("/dev/shm/mover." + n.name + ".mem") })
	}
	if err := os.WriteFile(a.path("data", "f"), data, 0o600); err != nil {
		t.Fatal(err)
	}
	type place = map[string]any
	move := func(from, to place) job.Snapshot {
		t.Helper()
		s := a.ended(t, a.submitJob(t, map[string]any{"source": from, "destination": to}))
		if s.State != job.Succeeded || !s.Result.Verified {
			t.Fatalf("%v to %v: %s, %+v, %+v", from, to, s.State, s.LastReason, s.Result)
		}
		return s
	}
	content := func(n *testNode) []byte {
		t.Helper()
		status, _, text := n.call(t, http.MethodGet, "/v1/buffers/mem/data", "")
		if status != http.StatusOK {
			t.Fatalf("read: %d", status)
		}
		return text
	}
	move(place{"path": "data/f"}, place{"buffer": "mem"})
	if !bytes.Equal(content(a), data) {
		t.Error("a file into this node's buffer is not the same")
	}
	move(place{"buffer": "mem"}, place{"node": "b", "buffer": "mem"})
	if !bytes.Equal(content(b), data) {
		t.Error("buffer to buffer is not the same")
	}
	move(place{"buffer": "mem", "offset": "1B", "length": "4097B"}, place{"node": "b", "buffer": "mem", "offset": "10B"})
	want := bytes.Clone(data)
	copy(want[10:], data[1:4098])
	if !bytes.Equal(content(b), want) {
		t.Error("a range that is not whole pages is not the same")
	}
	move(place{"buffer": "mem", "offset": "4096B", "length": "8192B"}, place{"node": "b", "buffer": "mem", "offset": "0B"})
	copy(want, data[4096:4096+8192])
	if !bytes.Equal(content(b), want) {
		t.Error("whole pages are not the same, or what is beside them was changed")
	}
	move(place{"buffer": "mem"}, place{"node": "b", "path": "incoming/g"})
	if got, err := os.ReadFile(b.path("incoming", "g")); err != nil || !bytes.Equal(got, data) {
		t.Errorf("a buffer into a file: %d bytes, %v", len(got), err)
	}
	move(place{"buffer": "mem", "length": "8192B"}, place{"node": "a", "buffer": "mem", "offset": "8192B"})
	copy(data[8192:], data[:8192])
	if !bytes.Equal(content(a), data) {
		t.Error("within one buffer is not the same")
	}
	s := a.ended(t, a.submitJob(t, map[string]any{"source": place{"buffer": "none"}, "destination": place{"node": "b", "buffer": "mem"}}))
	wantReason(t, s, job.Failed, string(reason.SourceNotFound))
	s = a.ended(t, a.submitJob(t, map[string]any{"source": place{"buffer": "mem"}, "destination": place{"node": "b", "buffer": "none"}}))
	wantReason(t, s, job.Failed, string(reason.DestNotFound))
}

// sha256File is the digest of a file's content.
func sha256File(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%x", sha256.Sum256(data))
}

// noPartials checks that nothing unfinished was left.
func noPartials(t *testing.T, top string) {
	t.Helper()
	for rel := range listing(t, top) {
		if strings.Contains(rel, ".mover.") {
			t.Errorf("%s was left", rel)
		}
	}
}

// TestJobsSurviveAKill: what was answered with 202 is there after the process
// was killed, with the same id and key, and is carried out; what had ended is
// still known.
func TestJobsSurviveAKill(t *testing.T) {
	a, b := pair(t, "")
	if err := os.WriteFile(a.path("data", "f"), []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	ended := a.submit(t, "f", "b", "before")
	a.ended(t, ended)
	b.stop(t)
	waiting := a.submit(t, "f", "b", "after")
	within(t, jobLimit, "no attempt has failed", func() bool { return a.job(t, waiting).LastReason != nil })
	a.kill(t)
	a.start(t)
	if s := a.job(t, ended); s.State != job.Succeeded || s.Result == nil {
		t.Errorf("the job that had ended is %s, %+v", s.State, s.Result)
	}
	if s := a.job(t, waiting); s.State.Terminal() || s.Attempts == 0 {
		t.Errorf("the job that waited is %s after %d attempts", s.State, s.Attempts)
	}
	b.start(t)
	if s := a.ended(t, waiting); s.State != job.Succeeded {
		t.Errorf("%s, %+v", s.State, s.LastReason)
	}
	if sha256File(t, a.path("data", "f")) != sha256File(t, b.path("incoming", "after")) {
		t.Error("the bytes are not the same")
	}
}

// TestOtherDirections: a job is submitted at its destination, and at a node that
// is neither end; its owner is the source's node, which must list who submits.
func TestOtherDirections(t *testing.T) {
	a, b, c := newNode(t, "a"), newNode(t, "b"), newNode(t, "c")
	a.configure(t, "delegates: [b, c]\n", b.as(t), c.as(t))
	b.configure(t, "", a.as(t), c.as(t))
	c.configure(t, "", a.as(t), b.as(t))
	for _, n := range []*testNode{a, b, c} {
		n.start(t)
	}
	oddTree(t, a.path("data", "tree"))
	for at, n := range map[string]*testNode{"pull": b, "third": c} {
		spec := map[string]any{"source": map[string]string{"node": "a", "path": "data/tree"}, "recursive": true,
			"destination": map[string]string{"node": "b", "path": "incoming/" + at}}
		id := n.submitJob(t, spec)
		s := n.ended(t, id)
		if s.State != job.Succeeded || s.Forwarded == nil || s.Forwarded.Node != "a" || !strings.HasPrefix(s.Owner, n.name+"/") {
			t.Fatalf("%s: %s, %+v, forwarded %+v, owner %s", at, s.State, s.LastReason, s.Forwarded, s.Owner)
		}
		if own := a.job(t, id); own.Origin != n.name || own.Owner != s.Owner {
			t.Errorf("%s: at its owner it is %+v", at, own)
		}
		sameTree(t, a.path("data", "tree"), b.path("incoming", at))
		status, _, text := n.call(t, http.MethodGet, "/v1/jobs/"+id+"/items?limit=3", "")
		if status != http.StatusOK || !bytes.Contains(text, []byte(`"succeeded"`)) {
			t.Errorf("%s: items through the stub: %d %s", at, status, text)
		}
	}
	// a is not a delegate of b.
	if err := os.WriteFile(b.path("data", "f"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := a.ended(t, a.submitJob(t, map[string]any{"source": map[string]string{"node": "b", "path": "data/f"}, "destination": map[string]string{"path": "incoming/f"}}))
	wantReason(t, s, job.Failed, string(reason.NotAuthorized))
	// What it would do, asked at the third node.
	body := `{"source": {"node": "a", "path": "data/tree"}, "recursive": true, "destination": {"node": "b", "path": "incoming/pull"}}`
	status, _, text := c.call(t, http.MethodPost, "/v1/plan", body)
	if status != http.StatusOK || !bytes.Contains(text, []byte(`"complete":true`)) || !bytes.Contains(text, []byte(string(reason.DestExists))) {
		t.Errorf("plan: %d %s", status, text)
	}
}

// TestBandwidthLimit: a job keeps to its limit, which can be taken away while it
// runs.
func TestBandwidthLimit(t *testing.T) {
	a, b := pair(t, "")
	if err := os.WriteFile(a.path("data", "f"), bytes.Repeat([]byte("0123456789abcdef"), 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	for node, at := range map[string]*testNode{"b": b, "a": a} {
		id := a.submitJob(t, map[string]any{"source": map[string]string{"path": "data/f"}, "bandwidth_limit": "8Mbit/s",
			"destination": map[string]string{"node": node, "path": "incoming/limited"}})
		within(t, jobLimit, "it does not move", func() bool { return a.job(t, id).Progress.BytesDone > 0 })
		// 16 MiB at 1 MB/s take 16 s; a second later it can't have ended.
		time.Sleep(time.Second)
		if s := a.job(t, id); s.State != job.Running || s.Progress.BytesDone > 8<<20 {
			t.Errorf("to %s after a second: %s, %+v", node, s.State, s.Progress)
		}
		status, _, text := a.call(t, http.MethodPatch, "/v1/jobs/"+id, `{"bandwidth_limit": "none"}`)
		if status != http.StatusOK {
			t.Fatalf("patch: %d %s", status, text)
		}
		if s := a.ended(t, id); s.State != job.Succeeded {
			t.Errorf("to %s: %s, %+v", node, s.State, s.LastReason)
		}
		if sha256File(t, a.path("data", "f")) != sha256File(t, at.path("incoming", "limited")) {
			t.Error("the bytes are not the same")
		}
	}
}
