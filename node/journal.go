package node

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"slices"
	"time"

	"mover/fileio"
	"mover/job"
)

// journal keeps a small file in the state directory for each item that is being
// received, and for the latest that were published. A process that is killed
// leaves two things that only the next one can put right: partial files, for
// which no attempt may ever come again, and files that have their name though
// the source was never told. Records are not synced: they must outlive the
// process. A power cut may take the latest; then a job whose file is there
// fails with DEST_EXISTS, or a partial file stays, and no data is lost.
//
// Safe for concurrent use, as long as one item is handled by one goroutine at a
// time, which inbounds sees to.
type journal struct {
	dir string
	log *slog.Logger
}

// recordVersion is the version of entry that is written. Version 1, which has
// no groups, is read too.
const recordVersion = 2

// entry is what is recorded of an item: a file, or a group of tree entries.
type entry struct {
	Version int    `json:"v"`
	Peer    string `json:"peer"` // that sends it; this node for a local copy
	Job     job.ID `json:"job"`
	Root    string `json:"root"`
	Path    []byte `json:"path"` // below Root; of a group, what its names are below
	Size    int64  `json:"size"`
	Durable bool   `json:"durable"`
	// Done is the DoneMeta, written just before the file gets its name, and
	// Inode the file's; Done is nil until then.
	Done  []byte       `json:"done,omitempty"`
	Inode fileio.Inode `json:"inode"`

	// Of a group. Dirs are the directories below Path where it has partial
	// files, Names what it gives names to, written just before the first.
	Attempt uint32             `json:"attempt,omitempty"`
	Group   uint32             `json:"group,omitempty"`
	Dirs    [][]byte           `json:"dirs,omitempty"`
	Names   []fileio.NameInode `json:"names,omitempty"`
}

func newEntry(key itemKey, m *job.Manifest) entry {
	return entry{Version: recordVersion, Peer: key.peer, Job: m.Job, Root: m.Root, Path: m.Path, Size: m.Size, Durable: m.Durable}
}

func newGroupEntry(key itemKey, g *job.GroupManifest) entry {
	e := entry{Version: recordVersion, Peer: key.peer, Job: g.Job, Root: g.Root, Path: g.Base, Durable: g.Durable, Attempt: g.Attempt, Group: g.Group}
	last := "/" // no directory has this name
	for i := range g.Entries {
		if g.Entries[i].Kind == job.EntryDir {
			continue
		}
		if dir := path.Dir(string(g.Entries[i].Path)); dir != last { // a walk gives those of a directory in a row
			e.Dirs = append(e.Dirs, []byte(dir))
			last = dir
		}
	}
	return e
}

func (e *entry) key() itemKey {
	return itemKey{jobKey: jobKey{peer: e.Peer, job: e.Job}, place: e.Root + "/" + string(e.Path), attempt: e.Attempt, group: e.Group}
}

// openJournal makes the directory if there is none. The caller holds the lock
// of the state directory: what another process that lives is receiving must not
// be cleaned up.
func openJournal(stateDir string, log *slog.Logger) (*journal, error) {
	dir := filepath.Join(stateDir, "receiving")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("node.state_dir: %w; make it writable for the user that runs mover", err)
	}
	return &journal{dir: dir, log: log}, nil
}

// file is the record's name: a peer's name is no safe file name.
func (j *journal) file(k itemKey) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%s/%d/%d/%s", k.peer, k.job, k.attempt, k.group, k.place))
	return filepath.Join(j.dir, hex.EncodeToString(sum[:16]))
}

// put records e, in place of an earlier record of the same item. A failure is
// logged and no more: the record matters only if this process is killed.
func (j *journal) put(e entry) {
	text, err := json.Marshal(e)
	if err == nil {
		name := j.file(e.key())
		if err = os.WriteFile(name+".new", text, 0o600); err == nil {
			err = os.Rename(name+".new", name)
		}
	}
	if err != nil {
		j.log.Warn("an item being received could not be recorded; if mover is killed now, its partial file stays", "job", e.Job, "peer", e.Peer, "error", err)
	}
}

// remove forgets an item.
func (j *journal) remove(k itemKey) {
	if err := os.Remove(j.file(k)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		j.log.Warn("the record of a received item could not be removed", "job", k.job, "peer", k.peer, "error", err)
	}
}

// recoverLimit bounds the cleaning up behind an earlier process.
const recoverLimit = 10 * time.Second

// recover reads what an earlier process left. It removes the partial files that
// no process holds from the directories where it was receiving, and returns
// what it published, oldest first. Call it before anything is received.
func (j *journal) recover(r *roots) []entry {
	ctx, cancel := context.WithTimeout(context.Background(), recoverLimit)
	defer cancel()
	var published []entry
	swept := map[[2]string]bool{}
	sweep := func(root *fileio.Root, dir string, of job.ID) {
		if where := [2]string{root.Name(), dir}; !swept[where] {
			swept[where] = true
			j.sweep(ctx, root, dir, of)
		}
	}
	for _, e := range j.read() {
		root, _ := r.get(e.Root)
		if root == nil {
			j.log.Warn("a root in which files were being received is not configured any more; partial files may be left there", "root", e.Root, "job", e.Job, "peer", e.Peer)
			j.remove(e.key())
			continue
		}
		ok, err := j.published(root, &e)
		if err != nil {
			j.log.Warn("cannot tell whether a file was published before the restart", "job", e.Job, "peer", e.Peer, "error", err)
		}
		if e.Attempt != 0 {
			for _, dir := range e.Dirs {
				sweep(root, path.Join(string(e.Path), string(dir)), e.Job)
			}
		} else if !ok {
			sweep(root, path.Dir(string(e.Path)), e.Job)
		}
		if ok {
			published = append(published, e)
		} else {
			j.remove(e.key())
		}
	}
	return published
}

// published reports whether an item got as far as its name, or the first of its
// names; those that did not are taken out.
func (j *journal) published(root *fileio.Root, e *entry) (bool, error) {
	if e.Attempt == 0 {
		if e.Done == nil {
			return false, nil
		}
		return root.Published(string(e.Path), e.Inode, e.Size, e.Durable)
	}
	if len(e.Names) == 0 {
		return false, nil
	}
	is, err := root.PublishedGroup(string(e.Path), e.Names, e.Durable)
	if err != nil {
		return false, err
	}
	var kept []fileio.NameInode
	for i, name := range e.Names {
		if is[i] {
			kept = append(kept, name)
		}
	}
	e.Names = kept
	return len(kept) > 0, nil
}

// sweep removes the partial files in a directory: those of a job, and of any
// other that was receiving there.
func (j *journal) sweep(ctx context.Context, root *fileio.Root, dir string, of job.ID) {
	got, err := root.Sweep(ctx, dir, time.Time{})
	if err != nil || got.Left > 0 {
		j.log.Warn("partial files from before the restart may be left", "root", root.Name(), "directory", dir, "job", of, "left", got.Left, "error", err)
	}
	if got.Removed > 0 {
		j.log.Info("removed partial files from before the restart", "root", root.Name(), "directory", dir, "job", of, "removed", got.Removed)
	}
}

// read returns the readable records, oldest first, and removes the others.
func (j *journal) read() []entry {
	files, err := os.ReadDir(j.dir)
	if err != nil {
		j.log.Warn("the records of received items cannot be read", "error", err)
		return nil
	}
	type dated struct {
		entry
		at time.Time
	}
	var found []dated
	for _, f := range files {
		name := filepath.Join(j.dir, f.Name())
		var e dated
		text, err := os.ReadFile(name)
		if err == nil {
			err = json.Unmarshal(text, &e.entry)
		}
		info, statErr := f.Info()
		if err = errors.Join(err, statErr); err != nil || e.Version < 1 || e.Version > recordVersion || e.Version == recordVersion && name != j.file(e.key()) {
			// Half written when the process was killed, or of another version.
			j.log.Warn("a record of a received item is not readable and was removed", "file", name, "error", err)
			_ = os.Remove(name)
			continue
		}
		e.at = info.ModTime()
		found = append(found, e)
	}
	slices.SortFunc(found, func(a, b dated) int { return a.at.Compare(b.at) })
	out := make([]entry, len(found))
	for i, e := range found {
		out[i] = e.entry
	}
	return out
}
