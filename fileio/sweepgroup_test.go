package fileio

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"mover/reason"
)

// treeTransfer moves a small tree with everything that a tree can have.
type treeTransfer struct {
	transfer
	source    string
	base      string
	overwrite Overwrite
	// together: hard links in the same group as the file they are names of.
	together bool
}

// sweepTree makes the source of all tree transfers.
func sweepTree(t *testing.T) string {
	top := t.TempDir()
	for _, d := range []string{"d", "d/sub", "none"} {
		must(os.Mkdir(filepath.Join(top, d), 0o755))
	}
	for rel, bytes := range map[string]int{"a": 3000, "empty": 0, "d/b": 5000, "d/sub/c": 100} {
		must(os.WriteFile(filepath.Join(top, rel), noise(t, bytes, uint64(bytes)), 0o644))
		must(os.Chmod(filepath.Join(top, rel), 0o640))
	}
	must(os.Link(filepath.Join(top, "d/b"), filepath.Join(top, "d/sub/hard")))
	must(os.Symlink("d/b", filepath.Join(top, "link")))
	must(os.Chmod(filepath.Join(top, "d"), 0o750))
	for _, rel := range []string{"a", "empty", "d/b", "d/sub/c"} {
		must(os.Chtimes(filepath.Join(top, rel), t0, time.Unix(1_700_000_000, 5)))
	}
	return top
}

// newTreeTransfer takes old as what is at the destination, below base.
func newTreeTransfer(name, source string, durable bool, overwrite Overwrite, together bool, old map[string][]byte) transfer {
	tr := &treeTransfer{source: source, base: "in/top", overwrite: overwrite, together: together}
	must(filepath.WalkDir(source, func(path string, d os.DirEntry, err error) error {
		must(err)
		rel := must1(filepath.Rel(source, path))
		info := must1(d.Info())
		e := expect{rel: joinRel(tr.base, rel), mode: info.Mode().Perm(), old: old[rel]}
		switch {
		case d.IsDir():
			e.kind = KindDir
		case info.Mode()&os.ModeSymlink != 0:
			e.kind, e.target = KindSymlink, must1(os.Readlink(path))
		default:
			e.content, e.mtime = must1(os.ReadFile(path)), info.ModTime()
			if rel == "d/sub/hard" {
				e.kind, e.sameAs = KindHardLink, joinRel(tr.base, "d/b")
			}
		}
		tr.entries = append(tr.entries, e)
		return nil
	}))
	tr.transfer = transfer{name: name, durable: durable, entries: tr.entries, run: tr.move, recover: tr.found,
		prepare: func(dir string) {
			for rel, content := range old {
				full := filepath.Join(dir, tr.base, rel)
				must(os.MkdirAll(filepath.Dir(full), 0o755))
				must(os.WriteFile(full, content, 0o644))
				must(os.Chtimes(full, t0, time.Unix(1_600_000_000, 7)))
			}
		}}
	return tr.transfer
}

// found is what a node finds at its start.
func (tr *treeTransfer) found(r *Root, known records) (rels []string) {
	var names []NameInode
	for _, n := range known {
		names = append(names, n)
	}
	there := must1(r.PublishedGroup(tr.base, names, tr.durable))
	for i, n := range names {
		if there[i] {
			rels = append(rels, joinRel(tr.base, n.Rel))
		}
	}
	return rels
}

// move is one attempt at the whole tree.
func (tr *treeTransfer) move(a attempt) []result {
	said := map[string]result{}
	err := tr.try(a, said)
	out := make([]result, len(tr.entries))
	for i, e := range tr.entries {
		r, ok := said[e.rel]
		switch {
		case ok:
		case err == nil:
			r.err = reason.New(reason.Internal, "nobody said what became of %s", e.rel)
		default:
			r.err = err
		}
		out[i] = r
	}
	return out
}

// try walks, sends the groups, and finishes the directories.
func (tr *treeTransfer) try(a attempt, said map[string]result) error {
	ctx := context.Background()
	from := rootOn(tr.source, a.root.k)
	defer from.Close()
	var entries, dirs []Entry
	err := from.Walk(ctx, ".", WalkConfig{
		Visit: func(e Entry) error { entries = append(entries, e); return nil },
		Leave: func(e Entry) error { dirs = append(dirs, e); return nil },
	})
	if err != nil {
		return err
	}
	slices.SortFunc(entries, func(a, b Entry) int { return strings.Compare(a.Rel, b.Rel) })
	var links, rest []Entry
	for _, e := range entries {
		if e.Rel == "d/sub/hard" {
			e.Kind, e.Target = KindHardLink, "d/b"
			links = append(links, e)
		} else if e.Rel != "." {
			rest = append(rest, e)
		}
	}
	groups := [][]Entry{rest, links}
	if tr.together {
		groups = [][]Entry{append(rest, links...)}
	}
	for i, g := range groups {
		if err := tr.sendGroup(ctx, a, from, uint64(i), g, said); err != nil {
			return err
		}
	}
	return tr.finish(ctx, a, dirs, said)
}

// sendGroup moves one group; what it says of files and links is final, of
// directories not.
func (tr *treeTransfer) sendGroup(ctx context.Context, a attempt, from *Root, number uint64, entries []Entry, said map[string]result) error {
	src, err := from.OpenGroup(".", entries, crc32c)
	if err != nil {
		return err
	}
	defer src.Close()
	buf := make([]byte, src.Size())
	if _, err := src.ReadAt(buf, 0); err != nil {
		return err
	}
	spec := GroupSpec{Base: tr.base, Job: "job", Group: number, Attempt: a.number, Overwrite: tr.overwrite, Durable: tr.durable,
		Preserve: PreserveMode | PreserveMTime, Naming: func(names []NameInode) error {
			for _, n := range names {
				a.records[joinRel(tr.base, n.Rel)] = n
			}
			return nil
		}}
	for _, e := range entries {
		spec.Entries = append(spec.Entries, GroupEntry{Rel: e.Rel, Kind: e.Kind, Size: e.Size, Target: e.Target, Mode: e.Mode, MTime: e.MTime,
			Published: a.published[joinRel(tr.base, e.Rel)]})
	}
	dst, err := a.root.CreateGroup(ctx, spec)
	if err != nil {
		return err
	}
	defer dst.Discard()
	half := len(buf) / 2 // within a file
	for _, off := range []int{half, 0} {
		p := buf[off:]
		if off == 0 {
			p = buf[:half]
		}
		if _, err := dst.WriteAt(p, int64(off)); err != nil {
			return err
		}
	}
	if err := src.Verify(); err != nil {
		return err
	}
	if err := dst.Publish(ctx); err != nil {
		return err
	}
	var first error
	for i, o := range dst.Outcomes() {
		switch {
		case o.State == EntrySkipped:
			said[joinRel(tr.base, entries[i].Rel)] = result{done: true}
		case o.Err != nil:
			said[joinRel(tr.base, entries[i].Rel)] = result{err: o.Err}
			first = o.Err
		case entries[i].Kind != KindDir:
			said[joinRel(tr.base, entries[i].Rel)] = result{done: true}
		}
	}
	return first
}

// finish says of each directory how it went.
func (tr *treeTransfer) finish(ctx context.Context, a attempt, dirs []Entry, said map[string]result) error {
	list := make([]DirEntry, len(dirs))
	for i, d := range dirs {
		list[i] = DirEntry{Rel: d.Rel, Mode: d.Mode, MTime: d.MTime}
	}
	failed, err := a.root.FinishDirs(ctx, tr.base, list, PreserveMode|PreserveMTime, tr.durable)
	if err != nil {
		return err
	}
	for _, d := range dirs {
		said[joinRel(tr.base, d.Rel)] = result{done: true}
	}
	for _, f := range failed {
		said[joinRel(tr.base, dirs[f.Index].Rel)] = result{err: f.Err}
	}
	return nil
}

func treeTransfers(t *testing.T) []transfer {
	source := sweepTree(t)
	old := map[string][]byte{"a": noise(t, 100, 9), "d/b": noise(t, 5000, 10), "link": noise(t, 30, 11)}
	return []transfer{
		newTreeTransfer("tree into nothing", source, true, OverwriteFail, true, nil),
		newTreeTransfer("tree over files", source, true, OverwriteAlways, false, old),
		newTreeTransfer("tree over files by time", source, true, OverwriteIfDifferent, true, old),
		newTreeTransfer("tree not durable", source, false, OverwriteFail, false, nil),
	}
}

func TestSweepTree(t *testing.T) { sweepAllOf(t, treeTransfers(t), 4) }

// TestSweepSource lets each call of reading alone go wrong: either every byte is
// right, or there is a reason.
func TestSweepSource(t *testing.T) {
	source := sweepTree(t)
	want := map[string][]byte{}
	for _, rel := range []string{"a", "d/b"} {
		want[rel] = must1(os.ReadFile(filepath.Join(source, rel)))
	}
	// An ordinary disk: what is written does not matter.
	read := func(j *injector) (map[string][]byte, error) {
		r := rootOn(source, &faulty{kernel: j.disk, before: j.before})
		defer r.Close()
		got := map[string][]byte{}
		for rel := range want {
			src, err := r.OpenSource(rel)
			if err != nil {
				return nil, err
			}
			defer src.Close()
			p := make([]byte, src.Size())
			if n, err := src.ReadAt(p, 0); err != nil || n != len(p) {
				return nil, errors.Join(err, src.Verify())
			}
			if err := src.Verify(); err != nil {
				return nil, err
			}
			got[rel] = p
		}
		return got, nil
	}
	disk := newSimdisk(source)
	clean := &injector{disk: disk}
	if _, err := read(clean); err != nil {
		t.Fatal(err)
	}
	failed, survived := 0, 0
	for n := range clean.calls {
		for _, h := range harms {
			j := &injector{disk: disk, harm: h, n: n + 1}
			got, err := read(j)
			if j.hit == "" {
				continue
			}
			if err != nil {
				failed++
				if reason.Of(err) == "" {
					t.Errorf("call %d, %s: %v has no reason", n+1, h.name, err)
				}
				continue
			}
			survived++
			for rel, p := range want {
				if string(got[rel]) != string(p) {
					t.Errorf("call %d (%s), %s: %s is read wrongly and nobody says so", n+1, j.hit, h.name, rel)
				}
			}
		}
	}
	if failed == 0 || survived == 0 {
		t.Errorf("%d failed, %d survived", failed, survived)
	}
	t.Logf("%d injected faults: %d ended with a reason, %d without harm", failed+survived, failed, survived)
}
