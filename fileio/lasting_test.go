package fileio

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"mover/reason"
)

// syncsOf lets r tell which directories it syncs, by path below the root.
func syncsOf(r *Root) *[]string {
	var list []string
	r.k = &faulty{kernel: r.k, before: func(c call) error {
		if c.op != "fsync" {
			return nil
		}
		if path, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", c.fd)); err == nil {
			if info, err := os.Stat(path); err == nil && info.IsDir() {
				list = append(list, must1(filepath.Rel(r.Path(), path)))
			}
		}
		return nil
	}}
	return &list
}

// TestDirectoriesThatAreThereAreSynced: a process that was killed may have made
// them, and not come to their sync; what is published in them must last.
func TestDirectoriesThatAreThereAreSynced(t *testing.T) {
	r := newRoot(t)
	must(os.MkdirAll(filepath.Join(r.Path(), "a/b"), 0o755))
	got := syncsOf(r)
	for i := range 2 {
		if err := publish(r, CreateSpec{Rel: fmt.Sprintf("a/b/f%d", i), Durable: true}, []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	// The names b and a, once; the name of each file.
	if want := []string{"a", ".", "a/b", "a/b"}; !slices.Equal(*got, want) {
		t.Errorf("synced %q, want %q", *got, want)
	}
	// Made anew, it is another directory.
	must(os.RemoveAll(filepath.Join(r.Path(), "a/b")))
	*got = nil
	if err := publish(r, CreateSpec{Rel: "a/b/f", Durable: true}, []byte("x")); err != nil {
		t.Fatal(err)
	}
	// (a was there, and trying to make it is enough to be careful.)
	if want := []string{"a", ".", "a/b"}; !slices.Equal(*got, want) {
		t.Errorf("synced %q, want %q", *got, want)
	}
}

// TestClosedDirectoryAbove: one that may only be passed through, as those of
// many homes, is nobody's to sync and no reason to fail.
func TestClosedDirectoryAbove(t *testing.T) {
	for _, c := range []struct {
		op   string
		err  unix.Errno
		code reason.Code
	}{
		{"openbelow", unix.EACCES, ""}, {"openbelow", unix.EIO, reason.IOError}, {"fsync", unix.EROFS, ""}, {"fsync", unix.EIO, reason.IOError},
	} {
		r := newRoot(t)
		must(os.MkdirAll(filepath.Join(r.Path(), "home/me"), 0o755))
		seen := 0
		r.k = &faulty{kernel: r.k, before: func(call call) error {
			if call.op != c.op || call.op == "openbelow" && call.name != "home" {
				return nil
			}
			if seen++; seen == 1 {
				return c.err
			}
			return nil
		}}
		err := publish(r, CreateSpec{Rel: "home/me/f", Durable: true}, []byte("x"))
		if got := reason.Of(err); err != nil && got != c.code || err == nil && c.code != "" || seen == 0 {
			t.Errorf("%s %v: %v, want %q", c.op, c.err, err, c.code)
		}
	}
}

func TestLastingIsBounded(t *testing.T) {
	var l lasting
	for i := range 3 * lastingMax {
		l.add(fmt.Sprintf("d/%d", i))
		if !l.has(fmt.Sprintf("d/%d", i)) || l.count > lastingMax || len(l.rels) > lastingMax {
			t.Fatalf("after %d: %d remembered", i, l.count)
		}
	}
}

// TestRenameWhoseAnswerWasLost: the file has its name, so it is published, and
// not in the way of the next attempt.
func TestRenameWhoseAnswerWasLost(t *testing.T) {
	r := newRoot(t)
	r.k = &faulty{kernel: r.k, before: func(c call) error {
		if c.op == "renameat2" {
			return doneThen(unix.EIO)
		}
		return nil
	}}
	if err := publish(r, CreateSpec{Rel: "f", Durable: true}, []byte("x")); err != nil {
		t.Fatal(err)
	}
	wantFile(t, r, "f", []byte("x"))
	wantNames(t, r, "f")
}

// TestHardLinkToWhatFailed: the file's name leads to what was there before, and
// that is not what the link shall be.
func TestHardLinkToWhatFailed(t *testing.T) {
	r := newRoot(t)
	put(t, r, "b/f", []byte("old"))
	g := createGroup(t, r, GroupSpec{Base: "b", Overwrite: OverwriteAlways, Entries: []GroupEntry{
		{Rel: "f", Size: 3}, {Rel: "link", Kind: KindHardLink, Target: "f"}}})
	for i := range g.items {
		g.items[i].k = &faulty{kernel: g.items[i].k, before: func(c call) error {
			if c.op == "pwrite" {
				return unix.EIO
			}
			return nil
		}}
	}
	for i, o := range receive(t, g, []byte("new"), 0) {
		if o.State != EntryFailed || o.Err.Code != reason.IOError {
			t.Errorf("entry %d: %+v", i, o)
		}
	}
	wantFile(t, r, "b/f", []byte("old"))
	if _, err := os.Lstat(filepath.Join(r.Path(), "b/link")); err == nil {
		t.Error("the link was made")
	}
}

// TestSyncAboveFails: a file in a directory whose own name may be lost is not
// durable.
func TestSyncAboveFails(t *testing.T) {
	r := newRoot(t)
	must(os.Mkdir(filepath.Join(r.Path(), "b"), 0o755))
	g := createGroup(t, r, GroupSpec{Base: "b", Durable: true, Entries: []GroupEntry{{Rel: "d/f", Size: 1}}})
	base := g.dirs.open["."].fd
	g.k = &faulty{kernel: g.k, before: func(c call) error {
		if c.op == "fsync" && c.fd == base {
			return unix.EIO
		}
		return nil
	}}
	if o := receive(t, g, []byte("x"), 0)[0]; o.State != EntryPublished || o.Err == nil || o.Err.Code != reason.IOError {
		t.Errorf("%+v", o)
	}
}

// TestSymlinkMadeAgainIsNamedAgain: the inode that was told first is gone.
func TestSymlinkMadeAgainIsNamedAgain(t *testing.T) {
	r := newRoot(t)
	var told [][]NameInode
	spec := GroupSpec{Base: "b", Job: "j", Durable: true, Entries: []GroupEntry{{Rel: "f", Size: 1}, {Rel: "l", Kind: KindSymlink, Target: "f"}},
		Naming: func(names []NameInode) error {
			if told = append(told, names); len(told) == 1 {
				// A sweep, and somebody who takes the number.
				left := must1(filepath.Glob(filepath.Join(r.Path(), "b/.mover.*00000001*")))
				must(os.Remove(left[0]))
				must(os.WriteFile(filepath.Join(r.Path(), "other"), nil, 0o600))
			}
			return nil
		}}
	receive(t, createGroup(t, r, spec), []byte("x"), 0)
	if len(told) != 2 || len(told[1]) != 2 {
		t.Fatalf("told %v", told)
	}
	for i, there := range must1(r.PublishedGroup("b", told[1], true)) {
		if !there {
			t.Errorf("%s is not what was told", told[1][i].Rel)
		}
	}
	if want := must1(r.PublishedGroup("b", told[0], true)); !want[0] {
		t.Error("the file's inode changed")
	}
}

// TestPublishedGroupSyncsAbove: the process that made the directories may have
// died before it came to that.
func TestPublishedGroupSyncsAbove(t *testing.T) {
	r := newRoot(t)
	put(t, r, "in/b/d/e/f", []byte("x"))
	src := must1(r.OpenSource("in/b/d/e/f"))
	defer src.Close()
	dev, ino := src.Inode()
	got := syncsOf(r)
	there, err := r.PublishedGroup("in/b", []NameInode{{Rel: "d/e/f", Inode: Inode{dev, ino}, Size: 1}}, true)
	if err != nil || !there[0] {
		t.Fatal(there, err)
	}
	if want := []string{"in", ".", "in/b/d/e", "in/b/d", "in/b"}; !slices.Equal(*got, want) {
		t.Errorf("synced %q, want %q", *got, want)
	}
	failOp(r, "fsync", 3, unix.EIO)
	there, err = r.PublishedGroup("in/b", []NameInode{{Rel: "d/e/f", Inode: Inode{dev, ino}, Size: 1}}, true)
	if err != nil || there[0] {
		t.Errorf("with a directory above that cannot be synced: %v, %v", there, err)
	}
}
