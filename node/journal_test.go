package node

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/uuid"

	"mover/fileio"
	"mover/job"
	"mover/node/config"
)

// journalled is a root and a state directory that outlive processes.
type journalled struct {
	dir   string // of the root
	state string
}

func newJournalled(t *testing.T) *journalled {
	return &journalled{dir: t.TempDir(), state: t.TempDir()}
}

// process opens both, as a process that starts does, and recovers.
func (j *journalled) process(t *testing.T) (*journal, *roots, []entry) {
	t.Helper()
	r, err := openRoots(map[string]config.Root{"in": {Path: j.dir}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.close)
	book, err := openJournal(j.state, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return book, r, book.recover(r)
}

// manifest describes item n, of 4 bytes.
func (j *journalled) manifest(n uint32) job.Manifest {
	return job.Manifest{
		Job: uuid.MustParse("01a22d60-0275-765d-b10a-57ad86a82dda"), Item: n, Attempt: 1, Root: "in",
		Path: fmt.Appendf(nil, "sub/f%d", n), Overwrite: job.OverwriteFail, Durable: true, Size: 4,
	}
}

// fileKey is the key of a file that node a sends.
func fileKey(m job.Manifest) itemKey { return (&offered{Manifest: m}).key("a") }

// receive records an item and writes it, up to where Publish would come.
func (j *journalled) receive(t *testing.T, book *journal, r *roots, n uint32) *fileio.Sink {
	t.Helper()
	m := j.manifest(n)
	book.put(newEntry(fileKey(m), &m))
	spec, err := createSpec(&m)
	if err != nil {
		t.Fatal(err)
	}
	sink, err := r.open["in"].Create(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sink.WriteAt([]byte("data"), 0); err != nil {
		t.Fatal(err)
	}
	e := newEntry(fileKey(m), &m)
	e.Done, e.Inode = []byte("done"), sink.Inode()
	book.put(e)
	return sink
}

func (j *journalled) records(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(j.state, "receiving"))
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// TestPublishedBeforeAKillIsRemembered: the name was given and the process
// killed before the source was told.
func TestPublishedBeforeAKillIsRemembered(t *testing.T) {
	j := newJournalled(t)
	book, r, _ := j.process(t)
	if err := j.receive(t, book, r, 1).Publish(context.Background()); err != nil {
		t.Fatal(err)
	}
	_, _, published := j.process(t)
	if len(published) != 1 || string(published[0].Done) != "done" || published[0].key() != fileKey(j.manifest(1)) {
		t.Fatalf("recovered %+v", published)
	}
	// And by the process after that.
	if _, _, published = j.process(t); len(published) != 1 {
		t.Errorf("the second restart recovered %+v", published)
	}
}

// TestAnotherFileIsNotTakenForPublished: whatever has the name but is not the
// file received proves nothing.
func TestAnotherFileIsNotTakenForPublished(t *testing.T) {
	j := newJournalled(t)
	book, r, _ := j.process(t)
	sink := j.receive(t, book, r, 1) // alive, so that its inode is not used again
	defer sink.Discard()
	if err := os.WriteFile(filepath.Join(j.dir, "sub", "f1"), []byte("data"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, published := j.process(t); len(published) != 0 {
		t.Errorf("recovered %+v", published)
	}
	if n := j.records(t); n != 0 {
		t.Errorf("%d records left", n)
	}
}

// TestPartialsOfAKilledProcessAreRemoved, also if their job never comes again,
// and nothing else is.
func TestPartialsOfAKilledProcessAreRemoved(t *testing.T) {
	j := newJournalled(t)
	book, _, _ := j.process(t)
	sub := filepath.Join(j.dir, "sub")
	if err := os.Mkdir(sub, 0o700); err != nil {
		t.Fatal(err)
	}
	partial := ".mover." + strings.Repeat("0", 32) + ".partial"
	for _, name := range []string{partial, "other"} {
		if err := os.WriteFile(filepath.Join(sub, name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	one := j.manifest(1)
	book.put(newEntry(fileKey(one), &one))
	gone := j.manifest(2)
	gone.Root = "gone"
	book.put(newEntry(fileKey(gone), &gone))
	if err := os.WriteFile(filepath.Join(j.state, "receiving", "torn.new"), []byte(`{"v":`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, published := j.process(t); len(published) != 0 {
		t.Errorf("recovered %+v", published)
	}
	left, err := os.ReadDir(sub)
	if err != nil || len(left) != 1 || left[0].Name() != "other" {
		t.Errorf("left %v, %v", left, err)
	}
	if n := j.records(t); n != 0 {
		t.Errorf("%d records left", n)
	}
}

// TestRecordsAreForgotten with what they are about.
func TestRecordsAreForgotten(t *testing.T) {
	b := newInbounds()
	for i := range uint32(rememberItems) {
		if got := b.recall(key(i), []byte("x")); got != nil {
			t.Fatalf("forgot %v early", got)
		}
	}
	in := newInbound(rememberItems, 1)
	if _, err := b.begin(in, 0); err != nil {
		t.Fatal(err)
	}
	if got := b.end(in, []byte("x")); len(got) != 1 || got[0] != key(0) {
		t.Errorf("forgot %v, want the oldest", got)
	}
}
