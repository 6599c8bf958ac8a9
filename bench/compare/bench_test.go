package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// testPlace is a place with a small source in the test's own directory,
// whatever file system that is on; kind says what it stands for.
func testPlace(t *testing.T, kind placeKind) *place {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "place")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	filesystem, err := filesystemOf(dir)
	if err != nil {
		t.Fatal(err)
	}
	p := &place{kind: kind, dir: dir, filesystem: filesystem, size: 3<<20 + 17}
	if err := p.fill(t.Context()); err != nil {
		t.Fatal(err)
	}
	return p
}

// copyingNodes is Nodes that copy in this process.
type copyingNodes struct {
	place   *place
	copies  []string
	corrupt bool
}

func (n *copyingNodes) Clients() (source, destination *jobClient) { return nil, nil }

func (n *copyingNodes) Copy(_ context.Context, what, out string) (time.Duration, error) {
	n.copies = append(n.copies, out)
	if what == treeName {
		to := filepath.Join(n.place.incoming(), out)
		if err := os.CopyFS(to, os.DirFS(n.place.tree())); err != nil || n.corrupt {
			return 10 * time.Millisecond, err // os.CopyFS sets no times
		}
		return 10 * time.Millisecond, setTimes(n.place.tree(), to)
	}
	data, err := os.ReadFile(n.place.source())
	if err != nil {
		return 0, err
	}
	if n.corrupt {
		data[len(data)/2] ^= 1
	}
	return 10 * time.Millisecond, os.WriteFile(filepath.Join(n.place.incoming(), out), data, 0o644)
}

// setTimes gives the files below to the times of those below from.
func setTimes(from, to string) error {
	return filepath.WalkDir(from, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, name)
		if err != nil {
			return err
		}
		return os.Chtimes(filepath.Join(to, rel), info.ModTime(), info.ModTime())
	})
}

func (n *copyingNodes) Resident() (source, destination resident, err error) {
	return resident{1 << 20, 1 << 20}, resident{1 << 20, 1 << 20}, nil
}

func (n *copyingNodes) Stop() error { return nil }

func TestFileFigure(t *testing.T) {
	for _, kind := range []placeKind{onTmpfs, onDisk} {
		p := testPlace(t, kind)
		nodes := &copyingNodes{place: p}
		b := newBench(options{pairs: 3}, nil, io.Discard)
		e, err := b.fileFigure(t.Context(), figure{name: "f", kind: fileFigure, peer: "cp", place: kind}, p, nodes)
		if err != nil {
			t.Fatal(err)
		}
		if e.Pairs != 3 || len(e.OursAll) != 3 || e.Ours != 0.01 || !(e.Theirs > 0) || e.Filesystem != p.filesystem {
			t.Errorf("%s: got %+v", kind, e)
		}
		if len(nodes.copies) != 4 { // the warm-up as well
			t.Errorf("%s: mover copied to %v", kind, nodes.copies)
		}
		for _, dir := range []string{p.incoming(), p.peerDir()} {
			if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
				t.Errorf("%s: copies left: %v, %v", kind, left, err)
			}
		}
	}
}

func TestFileFigureRefusesAWrongCopy(t *testing.T) {
	p := testPlace(t, onTmpfs)
	b := newBench(options{pairs: 2}, nil, io.Discard)
	_, err := b.fileFigure(t.Context(), figure{name: "f", kind: fileFigure, peer: "cp"}, p, &copyingNodes{place: p, corrupt: true})
	if err == nil {
		t.Fatal("a copy with a flipped bit was measured")
	}
}

// TestTreeFigure measures a tree against rsync; a tree whose files have not
// the times of the source is refused.
func TestTreeFigure(t *testing.T) {
	if _, err := lookTool("rsync", "rsync"); err != nil {
		t.Skip(err)
	}
	p := testPlace(t, onTmpfs)
	if err := p.fillTree(t.Context()); err != nil {
		t.Fatal(err)
	}
	f := figure{name: "f", kind: treeFigure, peer: "rsync", place: onTmpfs}
	b := newBench(options{pairs: 2}, nil, io.Discard)
	e, err := b.fileFigure(t.Context(), f, p, &copyingNodes{place: p})
	if err != nil || e.Unit != "s" || e.Ours != 0.01 || !strings.Contains(e.Setting, "-rlpt") {
		t.Errorf("got %+v, %v", e, err)
	}
	if left, err := os.ReadDir(p.incoming()); err != nil || len(left) > 0 {
		t.Errorf("copies left: %v, %v", left, err)
	}
	if _, err := timeOurs(t.Context(), p, &copyingNodes{place: p, corrupt: true}, treeName, "wrong", true); err == nil || !strings.Contains(err.Error(), "is not the source") {
		t.Errorf("a tree with other times: %v", err)
	}
}

// TestTreeSum: every difference a copy may have is seen.
func TestTreeSum(t *testing.T) {
	p := testPlace(t, onTmpfs)
	if err := p.fillTree(t.Context()); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(p.dir, "data", treeFile(7))
	for what, change := range map[string]func() error{
		"bytes":  func() error { return os.WriteFile(name, []byte("x"), 0o644) },
		"mode":   func() error { return os.Chmod(name, 0o600) },
		"a time": func() error { return os.Chtimes(name, time.Unix(5, 0), time.Unix(5, 0)) },
		"a file": func() error { return os.WriteFile(name+"-more", nil, 0o644) },
		"a name": func() error { return os.Rename(name, name+"-other") },
	} {
		if err := p.fillTree(t.Context()); err != nil {
			t.Fatal(err)
		}
		before := p.treeSum
		if err := change(); err != nil {
			t.Fatal(err)
		}
		if after, err := treeSum(t.Context(), p.tree()); err != nil || after == before {
			t.Errorf("another sum for %s is wanted: %s, %v", what, after, err)
		}
		if err := os.RemoveAll(p.tree()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestPeers runs every peer that is installed, in every setting, and compares
// what arrived.
func TestPeers(t *testing.T) {
	for name, tool := range map[string][2]string{
		"cp":      {"cp", "coreutils"},
		"rsync":   {"rsync", "rsync"},
		"gridftp": {"globus-gridftp-server", "globus-gridftp-server-progs"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := lookTool(tool[0], tool[1]); err != nil {
				t.Skip(err)
			}
			if name == "gridftp" && os.Geteuid() == 0 {
				// Its server serves as nobody, who must reach the files.
				t.Chdir("/")
				openPath(t, t.TempDir())
			}
			p := testPlace(t, onDisk)
			if name == "gridftp" {
				openPath(t, p.dir)
			}
			peer, err := startFilePeer(t.Context(), name, p, sourceName)
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := peer.stop(); err != nil {
					t.Error(err)
				}
			}()
			for s := range peer.settings() {
				if _, err := timeCopy(t.Context(), p, sourceName, peer, s, s, true); err != nil {
					t.Errorf("%s: %v", peer.describe(s), err)
				}
			}
		})
	}
}

// openPath lets everybody pass through the directories the test owns.
func openPath(t *testing.T, dir string) {
	t.Helper()
	for d := dir; d != os.TempDir() && d != "/"; d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

func TestIperf(t *testing.T) {
	if _, err := lookTool("iperf3", "iperf3"); err != nil {
		t.Skip(err)
	}
	p, err := startIperf(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := p.stop(); err != nil {
			t.Error(err)
		}
	}()
	if rate, err := p.run(t.Context(), 3, 1); err != nil || !(rate > 0) {
		t.Errorf("%s: %v Gbit/s, %v", p.describe(3), rate, err)
	}
}

func TestPlaceChecks(t *testing.T) {
	dir := t.TempDir()
	filesystem, err := filesystemOf(dir)
	if err != nil {
		t.Fatal(err)
	}
	wrong, right := onTmpfs, onDisk
	if filesystem == "tmpfs" {
		wrong, right = onDisk, onTmpfs
	}
	if _, err := newPlace(t.Context(), wrong, dir, 1); err == nil {
		t.Errorf("%s passes for %s", filesystem, wrong)
	}
	if err := checkSpace(right, dir, 1<<60); err == nil {
		t.Error("there is room for two files of an EiB")
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("a refused place left %v, %v", left, err)
	}
}

func TestGenerateIsRepeatable(t *testing.T) {
	dir := t.TempDir()
	var sums [2]string
	for i := range sums {
		path := filepath.Join(dir, string(rune('a'+i)))
		sum, err := generate(t.Context(), path, 2<<20+1)
		if err != nil {
			t.Fatal(err)
		}
		if read, err := sha256File(t.Context(), path); err != nil || read != sum {
			t.Errorf("generate says %s, the file is %s, %v", sum, read, err)
		}
		sums[i] = sum
	}
	if sums[0] != sums[1] {
		t.Error("two runs copy different bytes")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := generate(ctx, filepath.Join(dir, "c"), 1); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
}

func TestBoundedBuffer(t *testing.T) {
	var b boundedBuffer
	for range 10 {
		if _, err := b.Write(bytes.Repeat([]byte{'x'}, outputLimit/3)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.Write([]byte("the end")); err != nil {
		t.Fatal(err)
	}
	if s := b.String(); len(s) > outputLimit || s[len(s)-7:] != "the end" {
		t.Errorf("kept %d bytes ending in %q", len(s), tail(s, 10))
	}
}
