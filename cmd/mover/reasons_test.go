package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"mover/job"
	"mover/reason"
)

// reasonCase provokes a reason through real nodes.
type reasonCase struct {
	code  reason.Code
	state job.State // that the job ends in
	// says are words of the message that tell a person what to do, or what is
	// in the way.
	says []string
	run  func(t *testing.T, w *reasonNodes) job.Snapshot
}

// reasonNodes are the nodes that the cases share: jobs begin at a.
type reasonNodes struct {
	a, b *testNode
	fuse *fuseServer // whose directory is a root of b; nil if there is none
	lack string      // why not
}

// someBytes is enough for several slots, and for a second at slowRate.
const (
	someBytes = 1 << 20
	slowRate  = "8Mbit/s"
)

// to submits data/SOURCE for PLACE, which is [NODE:]ROOT/PATH, and waits for
// the end.
func (w *reasonNodes) to(t *testing.T, source, place string, more map[string]any) job.Snapshot {
	t.Helper()
	return w.a.ended(t, w.begin(t, source, place, more))
}

func (w *reasonNodes) begin(t *testing.T, source, place string, more map[string]any) string {
	t.Helper()
	node, path, _ := strings.Cut(place, ":")
	spec := map[string]any{"source": map[string]any{"path": "data/" + source}, "destination": map[string]any{"node": node, "path": path}}
	for k, v := range more {
		spec[k] = v
	}
	return w.a.submitJob(t, spec)
}

// slow begins a job that takes seconds, and returns when bytes have moved.
func (w *reasonNodes) slow(t *testing.T, source, place string, more map[string]any) string {
	t.Helper()
	spec := map[string]any{"bandwidth_limit": slowRate}
	for k, v := range more {
		spec[k] = v
	}
	makeFile(t, w.a.path("data", source), 32*someBytes)
	id := w.begin(t, source, place, spec)
	within(t, jobLimit, "no byte has moved", func() bool { return w.a.job(t, id).Progress.BytesDone > 0 })
	return id
}

func (w *reasonNodes) file(t *testing.T, name string) string {
	t.Helper()
	makeFile(t, w.a.path("data", name), someBytes)
	return name
}

// ordinaryReasons are those that a healthy build on a healthy host can end with.
var ordinaryReasons = []reasonCase{
	{reason.SourceNotFound, job.Failed, []string{"none", "check the path"}, func(t *testing.T, w *reasonNodes) job.Snapshot {
		return w.to(t, "none", "b:incoming/none", nil)
	}},
	{reason.SourceChanged, job.Failed, []string{"submit again when nobody writes"}, changeSource},
	{reason.PermissionDenied, job.Failed, []string{"give the user mover runs as access"}, func(t *testing.T, w *reasonNodes) job.Snapshot {
		readOnly(t, w.b.path("incoming", "locked"))
		return w.to(t, w.file(t, "denied"), "b:incoming/locked/f", nil)
	}},
	{reason.DestExists, job.Failed, []string{"choose another name", "set overwrite"}, func(t *testing.T, w *reasonNodes) job.Snapshot {
		writeFile(t, w.b.path("incoming", "exists"), "precious")
		s := w.to(t, w.file(t, "exists"), "b:incoming/exists", nil)
		wantContent(t, w.b.path("incoming", "exists"), []byte("precious"))
		return s
	}},
	{reason.NoSpace, job.Failed, []string{"min_free", "free space there"}, func(t *testing.T, w *reasonNodes) job.Snapshot {
		return w.to(t, w.file(t, "large"), "b:tight/f", nil)
	}},
	{reason.Quota, job.Failed, []string{"raise the quota"}, func(t *testing.T, w *reasonNodes) job.Snapshot {
		return w.to(t, w.file(t, "quota"), "b:small/f", nil)
	}},
	{reason.PathOutsideRoot, job.Failed, []string{"give a path inside the root"}, func(t *testing.T, w *reasonNodes) job.Snapshot {
		if err := os.Symlink("/etc", w.a.path("data", "out")); err != nil {
			t.Fatal(err)
		}
		return w.to(t, "out/hostname", "b:incoming/outside", nil)
	}},
	{reason.UnsupportedFileType, job.Failed, []string{"a FIFO", "only regular files can be moved"}, func(t *testing.T, w *reasonNodes) job.Snapshot {
		if err := unix.Mkfifo(w.a.path("data", "fifo"), 0o600); err != nil {
			t.Fatal(err)
		}
		return w.to(t, "fifo", "b:incoming/fifo", nil)
	}},
	{reason.NameTooLong, job.Failed, []string{"shorten it"}, longName},
	{reason.SameFile, job.Failed, []string{"choose another destination"}, func(t *testing.T, w *reasonNodes) job.Snapshot {
		if err := os.Link(w.a.path("data", w.file(t, "same")), w.a.path("incoming", "same")); err != nil {
			t.Fatal(err)
		}
		return w.to(t, "same", "a:incoming/same", map[string]any{"overwrite": "always"})
	}},
	{reason.PeerUnreachable, job.Failed, []string{"check that mover runs there"}, func(t *testing.T, w *reasonNodes) job.Snapshot {
		return w.to(t, w.file(t, "unreachable"), "gone:incoming/f", nil)
	}},
	{reason.PeerRefused, job.Failed, []string{"fingerprint"}, func(t *testing.T, w *reasonNodes) job.Snapshot {
		return w.to(t, w.file(t, "refused"), "impostor:incoming/f", nil)
	}},
	{reason.Deadline, job.Expired, []string{"submit it again with a later one"}, func(t *testing.T, w *reasonNodes) job.Snapshot {
		makeFile(t, w.a.path("data", "late"), 32*someBytes)
		return w.to(t, "late", "b:incoming/late", map[string]any{"bandwidth_limit": slowRate, "deadline": "2s"})
	}},
	{reason.Canceled, job.Canceled, []string{"retry it"}, func(t *testing.T, w *reasonNodes) job.Snapshot {
		id := w.slow(t, "canceled", "b:incoming/canceled", nil)
		w.cancel(t, id)
		return w.a.ended(t, id)
	}},
	{reason.UnsupportedFilesystem, job.Failed, []string{"choose a root on a file system with hard links or renameat2"}, func(t *testing.T, w *reasonNodes) job.Snapshot {
		if w.fuse == nil {
			t.Skip(w.lack)
		}
		s := w.to(t, w.file(t, "fuse"), "b:fuse/f", nil)
		if left := w.fuse.names(); len(left) > 0 {
			t.Errorf("left behind: %q", left)
		}
		return s
	}},
	{reason.DestNotFound, job.Failed, []string{"`mover buffers ls` lists them"}, func(t *testing.T, w *reasonNodes) job.Snapshot {
		return w.to(t, w.file(t, "nowhere"), "", map[string]any{"destination": map[string]any{"node": "b", "buffer": "none"}})
	}},
	{reason.BufferBusy, job.Failed, []string{"leased to write by job:", "try again when it is released"}, busyBuffer},
	{reason.NotAuthorized, job.Failed, []string{"root closed does not list node a under write", "add it to roots.closed.write"}, func(t *testing.T, w *reasonNodes) job.Snapshot {
		return w.to(t, w.file(t, "closed"), "b:closed/f", nil)
	}},
}

// changeSource lets somebody write the file all the time, so that every
// attempt finds it changed.
func changeSource(t *testing.T, w *reasonNodes) job.Snapshot {
	name := w.a.path("data", w.file(t, "changing"))
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	over, done := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			if _, err := f.WriteString("x"); err != nil {
				done <- err
				return
			}
			select {
			case <-over:
				done <- nil
				return
			case <-time.After(2 * time.Millisecond):
			}
		}
	}()
	defer func() {
		close(over)
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	// Slow, so that no attempt can come to its end between two writes.
	return w.to(t, "changing", "b:incoming/changing", map[string]any{"bandwidth_limit": slowRate})
}

// longName moves a tree whose paths are as long as paths may be at the source,
// to where they are longer. Each part alone would be right.
func longName(t *testing.T, w *reasonNodes) job.Snapshot {
	part := strings.Repeat("n", 200)
	writeFile(t, w.a.path("data", "long", part, part, "f"), "x")
	into := strings.TrimSuffix(strings.Repeat(strings.Repeat("d", 199)+"/", 19), "/")
	s := w.to(t, "long", "b:incoming/"+into, map[string]any{"recursive": true})
	// What is not too long can be moved without the rest.
	rest := w.to(t, "long", "b:incoming/"+into, map[string]any{"recursive": true, "on_error": "continue"})
	wantReason(t, rest, job.Partial, string(reason.NameTooLong))
	if r := rest.Result; r == nil || r.ItemsFailed != 2 || r.Items != 2 {
		t.Errorf("without the rest: %+v, want 2 items and 2 failed", rest.Result)
	}
	status, _, text := w.a.call(t, http.MethodPost, "/v1/plan", `{"source": {"path": "data/long"}, "destination": {"node": "b", "path": "incoming/`+into+`"}, "recursive": true}`)
	if status != http.StatusOK || !strings.Contains(string(text), `"conflicts":2`) {
		t.Errorf("plan: %d %s", status, text)
	}
	return s
}

// busyBuffer sends into a buffer that another job is being written to.
func busyBuffer(t *testing.T, w *reasonNodes) job.Snapshot {
	status, _, text := w.b.call(t, http.MethodPut, "/v1/buffers/busy", fmt.Sprintf(`{"bytes": "%dB", "read": ["*"], "write": ["*"]}`, 32*someBytes))
	if status != http.StatusCreated {
		t.Fatalf("create: %d %s", status, text)
	}
	t.Cleanup(func() { os.Remove("/dev/shm/mover." + w.b.name + ".busy") })
	buffer := map[string]any{"destination": map[string]any{"node": "b", "buffer": "busy"}}
	first := w.slow(t, "first", "", buffer)
	s := w.to(t, w.file(t, "second"), "", buffer)
	if before := w.a.job(t, first); before.State.Terminal() {
		t.Errorf("the job that has the buffer is %s", before.State)
	}
	w.cancel(t, first)
	return s
}

func (w *reasonNodes) cancel(t *testing.T, id string) {
	t.Helper()
	if status, _, text := w.a.call(t, http.MethodPost, "/v1/jobs/"+id+"/cancel", ""); status != http.StatusOK {
		t.Fatalf("cancel: %d %s", status, text)
	}
}

// readOnly makes a directory that the node can't write to. Its mode alone does
// not stop root.
func readOnly(t *testing.T, dir string) {
	t.Helper()
	if err := os.Mkdir(dir, 0o555); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() != 0 {
		return
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_RDONLY, "size=1m"); err != nil {
		t.Skipf("a read-only file system cannot be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
}

// startReasonNodes makes a and b; b has roots with every kind of no room.
func startReasonNodes(t *testing.T) *reasonNodes {
	t.Helper()
	w := &reasonNodes{a: newNode(t, "a"), b: newNode(t, "b")}
	roots := ""
	for name, setting := range map[string]string{"tight": `write: ["*"], min_free: 100TiB`, "small": `write: ["*"], quota: 512KiB`, "closed": "write: [b]", "fuse": `write: ["*"]`} {
		if err := os.Mkdir(w.b.path(name), 0o755); err != nil {
			t.Fatal(err)
		}
		roots += fmt.Sprintf("  %s: {path: %q, %s}\n", name, w.b.path(name), setting)
	}
	w.fuse, w.lack = serveFuse(t, w.b.path("fuse"))
	other := newNode(t, "gone") // has ports that nobody else takes
	impostor := peerOf{"impostor", w.b.control, "sha256:" + strings.Repeat("0123456789abcdef", 4)}
	w.b.configure(t, roots, w.a.as(t))
	w.a.configure(t, "jobs: {max_attempts: 2}\n", w.b.as(t), other.as(t), impostor)
	w.a.start(t)
	w.b.start(t)
	return w
}

// check is what holds for every reason.
func (c *reasonCase) check(t *testing.T, s job.Snapshot) {
	t.Helper()
	wantReason(t, s, c.state, string(c.code))
	why := s.LastReason
	attempts := 1
	if c.code.Retryable() {
		attempts = 2
	}
	if s.Attempts != attempts || why.Retryable != c.code.Retryable() {
		t.Errorf("%d attempts, retryable is %t: want %d, %t", s.Attempts, why.Retryable, attempts, c.code.Retryable())
	}
	c.checkText(t, why.Detail)
}

func (c *reasonCase) checkText(t *testing.T, detail string) {
	t.Helper()
	t.Log(detail)
	for _, words := range c.says {
		if !strings.Contains(detail, words) {
			t.Errorf("does not say %q: %s", words, detail)
		}
	}
}

// TestReasons ends a job for every reason that needs no fault.
func TestReasons(t *testing.T) {
	w := startReasonNodes(t)
	t.Run("all", func(t *testing.T) {
		for _, c := range ordinaryReasons {
			t.Run(string(c.code), func(t *testing.T) {
				t.Parallel()
				c.check(t, c.run(t, w))
			})
		}
	})
	within(t, 10*time.Second, "partial files are still there", func() bool {
		found, err := filepath.Glob(w.b.path("*", ".mover*"))
		return err == nil && len(found) == 0
	})
	w.a.stop(t)
	w.b.stop(t)
}

// TestEveryReasonHasACase: a reason that is added needs one.
func TestEveryReasonHasACase(t *testing.T) {
	var have []reason.Code
	for _, c := range slices.Concat(ordinaryReasons, faultReasons) {
		have = append(have, c.code)
		if c.run == nil || len(c.says) == 0 {
			t.Errorf("the case of %s is not whole", c.code)
		}
	}
	for _, code := range reason.All() {
		if !slices.Contains(have, code) {
			t.Errorf("%s has no case: add one to ordinaryReasons or faultReasons", code)
		}
	}
}
