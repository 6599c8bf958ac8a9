package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"mover/bench/procfs"
)

const (
	// sourceName is the file every copy reads, inside the place's data folder.
	sourceName = "file2g"
	// spaceMargin is what must stay free beside source and one copy: journal,
	// state directories, logs.
	spaceMargin = 256 << 20
	// tmpfsMemoryMargin is the memory that must stay available beside the
	// files on tmpfs: arenas of two nodes and the peers' buffers.
	tmpfsMemoryMargin = 2 << 30
	// copyBuffer is the unit in which the harness itself reads and writes.
	copyBuffer = 1 << 20
)

// place is a work directory on one of the two file systems:
//
//	data/file2g   the source
//	data/small2k  the tree of small files, after fillTree
//	incoming/     where mover publishes
//	peer/         where the peers write; on a root run owned by nobody,
//	              because the GridFTP server refuses to serve as root
type place struct {
	kind       placeKind
	dir        string
	filesystem string // as the kernel names it
	size       int64  // of the source, bytes
	sourceSum  string // SHA-256, hex
	treeSum    string // of the tree, as treeSum makes it; empty without one
}

func (p *place) source() string   { return filepath.Join(p.dir, "data", sourceName) }
func (p *place) incoming() string { return filepath.Join(p.dir, "incoming") }
func (p *place) peerDir() string  { return filepath.Join(p.dir, "peer") }
func (p *place) durable() bool    { return p.kind == onDisk }
func (p *place) close() error     { return os.RemoveAll(p.dir) }
func (p *place) peerFile(run int) string {
	return filepath.Join(p.peerDir(), "out-"+strconv.Itoa(run))
}

// newPlace makes a work directory under parent, after checking that parent is
// on the right sort of file system and has room, and generates the source.
// The caller must close it.
func newPlace(ctx context.Context, kind placeKind, parent string, size int64) (*place, error) {
	filesystem, err := filesystemOf(parent)
	if err != nil {
		return nil, err
	}
	switch isTmpfs := filesystem == "tmpfs" || filesystem == "ramfs"; {
	case kind == onTmpfs && !isTmpfs:
		return nil, fmt.Errorf("%s is on %s, not tmpfs: name a tmpfs directory with -tmpfs", parent, filesystem)
	case kind == onDisk && isTmpfs:
		return nil, fmt.Errorf("%s is on %s: name a directory on a disk file system with -disk", parent, filesystem)
	}
	if err := checkSpace(kind, parent, size); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(parent, "mover-bench-")
	if err != nil {
		return nil, fmt.Errorf("making a work directory: %w", err)
	}
	p := &place{kind: kind, dir: dir, filesystem: filesystem, size: size}
	if err := p.fill(ctx); err != nil {
		return nil, errors.Join(err, p.close())
	}
	return p, nil
}

// fill makes the folders and the source file.
func (p *place) fill(ctx context.Context) error {
	// The GridFTP server serves as nobody and must be able to pass through.
	if err := os.Chmod(p.dir, 0o755); err != nil {
		return fmt.Errorf("preparing the work directory: %w", err)
	}
	for _, dir := range []string{filepath.Dir(p.source()), p.incoming(), p.peerDir()} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return fmt.Errorf("preparing the work directory: %w", err)
		}
	}
	sum, err := generate(ctx, p.source(), p.size)
	if err != nil {
		return err
	}
	p.sourceSum = sum
	return p.settle()
}

// checkSpace refuses to start what would end in a full file system: source
// plus one copy plus a margin, and on tmpfs the memory behind it.
func checkSpace(kind placeKind, parent string, size int64) error {
	var st unix.Statfs_t
	if err := unix.Statfs(parent, &st); err != nil {
		return fmt.Errorf("free space of %s: %w", parent, err)
	}
	free := int64(st.Bavail) * st.Bsize
	need := 2*size + spaceMargin
	if free < need {
		return fmt.Errorf("%s has %s free and the benchmark needs %s (source and one copy): free some, choose another directory with -%s, or a smaller file with -size",
			parent, formatBytes(free), formatBytes(need), kind)
	}
	if kind != onTmpfs {
		return nil
	}
	available, err := memAvailable()
	if err != nil {
		return err
	}
	if need := need + tmpfsMemoryMargin; available < need {
		return fmt.Errorf("%s of memory is available and the tmpfs figures need %s: choose a smaller file with -size, or leave them out with -only",
			formatBytes(available), formatBytes(need))
	}
	return nil
}

// memAvailable is MemAvailable of proc_meminfo(5), in bytes.
func memAvailable() (int64, error) {
	data, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, fmt.Errorf("available memory: %w", err)
	}
	v, err := procfs.KiBField(string(data), "MemAvailable")
	if err != nil {
		return 0, fmt.Errorf("available memory, /proc/meminfo: %w", err)
	}
	return v, nil
}

// generate writes size pseudo-random bytes to path, durably, and returns
// their SHA-256. The seed is fixed: every run copies the same bytes.
func generate(ctx context.Context, path string, size int64) (sum string, err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return "", fmt.Errorf("generating the source file: %w", err)
	}
	defer func() {
		if cerr := f.Close(); err == nil && cerr != nil {
			err = fmt.Errorf("generating the source file: %w", cerr)
		}
	}()
	rng := rand.NewChaCha8([32]byte{'m', 'o', 'v', 'e', 'r'})
	hash := sha256.New()
	buf := make([]byte, copyBuffer)
	for left := size; left > 0; {
		if err := ctx.Err(); err != nil {
			return "", err
		}
		part := buf[:min(left, int64(len(buf)))]
		_, _ = rng.Read(part) // never fails, by its documentation
		hash.Write(part)
		if _, err := f.Write(part); err != nil {
			return "", fmt.Errorf("generating the source file: %w", err)
		}
		left -= int64(len(part))
	}
	if err := f.Sync(); err != nil {
		return "", fmt.Errorf("generating the source file: %w", err)
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}

// warm reads what the figure copies once, so that it is in the page cache for
// whoever copies first.
func (p *place) warm(ctx context.Context, what string) (err error) {
	if what == treeName {
		_, err = treeSum(ctx, p.tree())
	} else {
		_, err = sha256File(ctx, p.source())
	}
	return err
}

// settle flushes what earlier runs left dirty on this file system, so that
// nobody pays for somebody else's writes. It is called between timed parts.
func (p *place) settle() error {
	d, err := os.Open(p.dir)
	if err != nil {
		return fmt.Errorf("flushing %s: %w", p.dir, err)
	}
	defer d.Close()
	if err := unix.Syncfs(int(d.Fd())); err != nil {
		return fmt.Errorf("flushing %s: %w", p.dir, err)
	}
	return nil
}

// discard removes a copy after it was measured and settles the file system.
func (p *place) discard(path string) error {
	if err := remove(path); err != nil {
		return err
	}
	return p.settle()
}

// check compares a copy with what was copied, which is sourceName or treeName.
func (p *place) check(ctx context.Context, what, path string) error {
	sumOf, want := sha256File, p.sourceSum
	if what == treeName {
		sumOf, want = treeSum, p.treeSum
	}
	sum, err := sumOf(ctx, path)
	if err != nil {
		return err
	}
	if sum != want {
		return fmt.Errorf("the copy %s is not the source: sha256 %s instead of %s", filepath.Base(path), sum, want)
	}
	return nil
}

// makeDurable is `sync FILE` for a file and its directory: fsync(2) of both.
func makeDurable(path string) error {
	for _, name := range []string{path, filepath.Dir(path)} {
		f, err := os.Open(name)
		if err != nil {
			return fmt.Errorf("syncing: %w", err)
		}
		err = f.Sync()
		if cerr := f.Close(); err == nil {
			err = cerr
		}
		if err != nil {
			return fmt.Errorf("syncing %s: %w", name, err)
		}
	}
	return nil
}

func sha256File(ctx context.Context, path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("hashing: %w", err)
	}
	defer f.Close()
	hash := sha256.New()
	buf := make([]byte, copyBuffer)
	for {
		if err := ctx.Err(); err != nil {
			return "", err
		}
		n, err := f.Read(buf)
		hash.Write(buf[:n])
		if err == io.EOF {
			return hex.EncodeToString(hash.Sum(nil)), nil
		}
		if err != nil {
			return "", fmt.Errorf("hashing %s: %w", path, err)
		}
	}
}

// filesystemOf names the type of the file system dir is on.
func filesystemOf(dir string) (string, error) {
	real, err := filepath.EvalSymlinks(dir)
	if err == nil {
		real, err = filepath.Abs(real)
	}
	if err != nil {
		return "", fmt.Errorf("file system of %s: %w", dir, err)
	}
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return "", fmt.Errorf("file system of %s: %w", dir, err)
	}
	defer f.Close()
	name, err := filesystemIn(f, real)
	if err != nil {
		return "", fmt.Errorf("file system of %s: %w", dir, err)
	}
	return name, nil
}

// filesystemIn finds the type of the mount that holds path (absolute, without
// symbolic links) in the text of /proc/PID/mountinfo, described in
// proc_pid_mountinfo(5). Of mounts on the same point the last one is on top.
func filesystemIn(mountinfo io.Reader, path string) (string, error) {
	best, bestLen := "", -1
	scanner := bufio.NewScanner(mountinfo)
	for scanner.Scan() {
		before, after, ok := strings.Cut(scanner.Text(), " - ")
		head, rest := strings.Fields(before), strings.Fields(after)
		if !ok || len(head) < 5 || len(rest) < 1 {
			continue
		}
		point := unescapeMount(head[4])
		inside := point == "/" || path == point || strings.HasPrefix(path, point+"/")
		if inside && len(point) >= bestLen {
			best, bestLen = rest[0], len(point)
		}
	}
	if err := scanner.Err(); err != nil {
		return "", err
	}
	if bestLen < 0 {
		return "", fmt.Errorf("no mount holds %s", path)
	}
	return best, nil
}

// unescapeMount undoes the kernel's \ooo escapes of blank, tab, newline and
// backslash in mount points.
var unescapeMount = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace
