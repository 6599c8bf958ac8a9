package fileio

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// simdisk is a kernel over a real directory that knows what a power cut would
// leave of it. Calls are really made, but for syncs, which record: fsync of a
// file makes its content, length and mode durable, fsync of a directory the
// names that are in it at that moment, and nothing else is durable, not even
// the name of a file that was synced, or of the directory that a synced one is
// in. That is less than ext4 and XFS give, whose journal keeps the order of all
// names, and it is all that POSIX promises. Safe for concurrent use.
type simdisk struct {
	kernel
	path string

	mu     sync.Mutex
	inodes map[identity]*siminode
	// refused are files of which a write was lost: the next fsync or flush says
	// so, once (errseq_t).
	refused map[identity]bool
}

// siminode is what is durable of an inode. A new one with a number that was
// used before is another siminode.
type siminode struct {
	id     identity
	kind   Kind
	synced []byte               // of a file
	mode   uint32               // permission bits
	mtime  time.Time            // of a file
	names  map[string]*siminode // of a directory
	target string               // of a symlink
}

// newSimdisk takes path as it is as durable.
func newSimdisk(path string) *simdisk {
	d := &simdisk{kernel: linux{}, path: path, inodes: map[identity]*siminode{}, refused: map[identity]bool{}}
	d.settle(path)
	return d
}

// settle makes path and everything in it durable, and returns it.
func (d *simdisk) settle(path string) *siminode {
	var st unix.Stat_t
	must(unix.Lstat(path, &st))
	d.mu.Lock()
	in := d.of(st, path)
	d.mu.Unlock()
	if in.kind == KindDir {
		for _, e := range must1(os.ReadDir(path)) {
			d.settle(filepath.Join(path, e.Name()))
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.record(in, path)
	return in
}

// of returns the inode of st, which path leads to. mu is held.
func (d *simdisk) of(st unix.Stat_t, path string) *siminode {
	id := identityOf(st)
	in := d.inodes[id]
	if in == nil {
		in = &siminode{id: id, kind: kindOf(st), mode: 0o600}
		if in.kind == KindSymlink {
			in.target = must1(os.Readlink(path))
		}
		d.inodes[id] = in
	}
	return in
}

// record makes in durable as it is at path. mu is held.
func (d *simdisk) record(in *siminode, path string) {
	if in.kind == KindSymlink {
		return // made whole or not at all
	}
	var st unix.Stat_t
	must(unix.Stat(path, &st)) // path may be one in /proc/self/fd
	in.mode = st.Mode & 0o777
	switch in.kind {
	case KindFile:
		in.synced, in.mtime = must1(os.ReadFile(path)), time.Unix(st.Mtim.Unix())
	case KindDir:
		in.names = d.live(path)
	}
}

// live lists a directory as it is now. mu is held.
func (d *simdisk) live(path string) map[string]*siminode {
	names := map[string]*siminode{}
	for _, e := range must1(os.ReadDir(path)) {
		var st unix.Stat_t
		full := filepath.Join(path, e.Name())
		if unix.Lstat(full, &st) == nil {
			names[e.Name()] = d.of(st, full)
		}
	}
	return names
}

// born forgets what an earlier inode of the same number was.
func (d *simdisk) born(dirFD int, name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	st, err := d.kernel.lstatat(dirFD, name)
	if err != nil {
		return
	}
	delete(d.inodes, identityOf(st))
	d.of(st, fmt.Sprintf("/proc/self/fd/%d/%s", dirFD, name))
}

func (d *simdisk) openat(dirFD int, name string, flags int, mode uint32) (int, error) {
	fd, err := d.kernel.openat(dirFD, name, flags, mode)
	if err == nil && flags&unix.O_EXCL != 0 {
		d.born(dirFD, name)
	}
	return fd, err
}

func (d *simdisk) mkdir(dirFD int, name string, mode uint32) error {
	err := d.kernel.mkdir(dirFD, name, mode)
	if err == nil {
		d.born(dirFD, name)
	}
	return err
}

func (d *simdisk) symlink(target string, dirFD int, name string) error {
	err := d.kernel.symlink(target, dirFD, name)
	if err == nil {
		d.born(dirFD, name)
	}
	return err
}

// fstatfs says ext4 wherever the test runs.
func (d *simdisk) fstatfs(fd int) (unix.Statfs_t, error) {
	st, err := d.kernel.fstatfs(fd)
	st.Type = unix.EXT4_SUPER_MAGIC
	return st, err
}

func (d *simdisk) fsync(fd int) error {
	st, err := d.kernel.fstat(fd)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.refusal(st); err != nil {
		return err
	}
	path := fmt.Sprintf("/proc/self/fd/%d", fd)
	d.record(d.of(st, path), path)
	return nil
}

func (d *simdisk) flush(fd int) error {
	st, err := d.kernel.fstat(fd)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.refusal(st)
}

func (d *simdisk) startWriteback(int) error { return nil }

func (d *simdisk) refusal(st unix.Stat_t) error {
	if d.refused[identityOf(st)] {
		delete(d.refused, identityOf(st))
		return unix.EIO
	}
	return nil
}

// refuse lets the next sync of fd fail.
func (d *simdisk) refuse(fd int) {
	if st, err := d.kernel.fstat(fd); err == nil {
		d.mu.Lock()
		d.refused[identityOf(st)] = true
		d.mu.Unlock()
	}
}

// cut is what a power cut keeps of what was not synced.
type cut struct {
	name          string
	names, length func() bool // a changed name; a file's new length and mode
	block         func() bool // a changed block of a file
}

func always() bool { return true }
func never() bool  { return false }

// cuts are the worst ones, and as many random ones.
func cuts(seeds ...uint64) []cut {
	list := []cut{
		{"everything unsynced is lost", never, never, never},
		{"names stay, data is lost", always, never, never},
		{"names and lengths stay, data is lost", always, always, never},
		{"data stays, names are lost", never, always, always},
	}
	for _, seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 1))
		coin := func() bool { return rng.IntN(2) == 0 }
		list = append(list, cut{fmt.Sprintf("random, seed %d", seed), coin, coin, coin})
	}
	return list
}

// powerCut builds in the empty directory to what c leaves of the disk, and
// returns what each inode's number has become.
func (d *simdisk) powerCut(to string, c cut) map[identity]identity {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := &aftermath{disk: d, cut: c, live: map[*siminode]string{}, placed: map[*siminode]string{}, moved: map[identity]identity{}}
	var top unix.Stat_t
	must(filepath.WalkDir(d.path, func(path string, _ fs.DirEntry, err error) error {
		var st unix.Stat_t
		must(err)
		must(unix.Lstat(path, &st))
		p.live[d.of(st, path)] = path
		return nil
	}))
	must(unix.Lstat(d.path, &top))
	p.fill(d.of(top, d.path), to)
	return p.moved
}

// aftermath is one powerCut.
type aftermath struct {
	disk   *simdisk
	cut    cut
	live   map[*siminode]string // where it is now
	placed map[*siminode]string
	moved  map[identity]identity
}

func (a *aftermath) fill(dir *siminode, to string) {
	now := map[string]*siminode{}
	if path, ok := a.live[dir]; ok {
		now = a.disk.live(path)
	}
	both := maps.Clone(now)
	maps.Copy(both, dir.names)
	for _, name := range slices.Sorted(maps.Keys(both)) {
		in := dir.names[name]
		if now[name] != in && a.cut.names() {
			in = now[name]
		}
		if in != nil {
			a.place(in, filepath.Join(to, name))
		}
	}
}

func (a *aftermath) place(in *siminode, to string) {
	first, again := a.placed[in]
	a.placed[in] = to
	switch {
	case again && in.kind != KindDir:
		must(os.Link(first, to))
	case in.kind == KindDir:
		must(os.Mkdir(to, 0o700))
		a.fill(in, to)
		must(os.Chmod(to, fs.FileMode(in.mode|0o700)))
	case in.kind == KindSymlink:
		must(os.Symlink(in.target, to))
	default:
		content, mode, mtime := in.synced, in.mode, in.mtime
		if path, ok := a.live[in]; ok {
			now := must1(os.ReadFile(path))
			info := must1(os.Stat(path))
			length := len(content)
			if a.cut.length() {
				length, mode, mtime = len(now), uint32(info.Mode().Perm()), info.ModTime()
			}
			content = a.blend(content, now, length)
		}
		must(os.WriteFile(to, content, 0o600))
		must(os.Chmod(to, fs.FileMode(mode)))
		must(os.Chtimes(to, time.Time{}, mtime))
	}
	var st unix.Stat_t
	must(unix.Lstat(to, &st))
	a.moved[in.id] = identityOf(st)
}

// blend is a file of length bytes, each block of which is the old or the new.
func (a *aftermath) blend(old, now []byte, length int) []byte {
	const blockBytes = 512
	out := make([]byte, length)
	copy(out, old)
	for at := 0; at < length; at += blockBytes {
		end := min(at+blockBytes, length)
		if at < len(now) && !bytes.Equal(out[at:min(end, len(now))], now[at:min(end, len(now))]) && a.cut.block() {
			copy(out[at:end], now[at:])
		}
	}
	return out
}

// must stops a test whose own tools fail: no verdict would mean anything.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

func must1[T any](v T, err error) T {
	must(err)
	return v
}

// TestSimdisk: the disk forgets exactly what was not synced.
func TestSimdisk(t *testing.T) {
	dir := t.TempDir()
	must(os.WriteFile(filepath.Join(dir, "old"), []byte("old"), 0o644))
	d := newSimdisk(dir)
	top := must1(d.openat(unix.AT_FDCWD, dir, unix.O_RDONLY|unix.O_DIRECTORY, 0))
	defer d.close(top)
	fd := must1(d.openat(top, "new", unix.O_RDWR|unix.O_CREAT|unix.O_EXCL, 0o600))
	defer d.close(fd)
	after := func(c cut) map[string]string {
		to := t.TempDir()
		d.powerCut(to, c)
		got := map[string]string{}
		for _, e := range must1(os.ReadDir(to)) {
			got[e.Name()] = string(must1(os.ReadFile(filepath.Join(to, e.Name()))))
		}
		return got
	}
	want := func(i int, files map[string]string) {
		t.Helper()
		if got := after(cuts()[i]); !maps.Equal(got, files) {
			t.Errorf("%s: %q, want %q", cuts()[i].name, got, files)
		}
	}
	must1(d.pwrite(fd, []byte("abc"), 0))
	want(0, map[string]string{"old": "old"})
	want(1, map[string]string{"old": "old", "new": ""})
	want(2, map[string]string{"old": "old", "new": "\x00\x00\x00"})
	must(d.fsync(fd))
	want(0, map[string]string{"old": "old"})
	want(1, map[string]string{"old": "old", "new": "abc"})
	must(d.rename(top, "new", "old", 0))
	want(0, map[string]string{"old": "old"})
	want(1, map[string]string{"old": "abc"})
	must1(d.pwrite(fd, []byte("xyz"), 0))
	must(d.fsync(top))
	want(0, map[string]string{"old": "abc"})
	seen := map[string]bool{}
	for seed := range uint64(20) {
		seen[after(cuts(seed)[4])["old"]] = true
	}
	if !seen["abc"] || !seen["xyz"] {
		t.Errorf("random cuts leave %v", seen)
	}
	d.refuse(fd)
	if d.flush(fd) != unix.EIO || d.flush(fd) != nil {
		t.Error("a refused write is not reported once")
	}
}
