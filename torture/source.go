//go:build linux

package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"
)

// source is a file or a tree below a node's root "data". It is never changed
// once it was made.
type source struct {
	node  *node
	name  string
	tree  bool
	bytes int64
	has   survey
}

// fileSizes are around the boundaries of what mover cuts a file into, and
// large enough to be caught in the middle.
var fileSizes = []int64{0, 1, 4095, 64<<10 + 1, 256 << 10, 256<<10 + 1, 1<<20 - 1, 5 << 20, 16<<20 + 3, 48 << 20, 128<<20 + 1}

// sources of a node.
type sources struct {
	files, trees []*source
	versions     []*source // files for destinations that several jobs share
	treeVersions []*source // trees with the same names
	buffer       []byte    // what the node's source buffer holds
}

// makeSources writes what a node's jobs move.
func makeSources(n *node, r *rand.Rand) (s sources, err error) {
	bytes := newNoise(r)
	for i, size := range fileSizes {
		f, err := makeFile(n, fmt.Sprintf("file%02d", i), size, bytes)
		if err != nil {
			return s, err
		}
		s.files = append(s.files, f)
	}
	for i := range 4 {
		f, err := makeFile(n, fmt.Sprintf("version%d", i), r.Int64N(6<<20)+1, bytes)
		if err != nil {
			return s, err
		}
		if err := redate(n.path("data", f.name), r); err != nil {
			return s, err
		}
		s.versions = append(s.versions, f)
	}
	for i, files := range []int{40, 400} {
		t, err := makeTree(n, fmt.Sprintf("tree%d", i), files, r, bytes)
		if err != nil {
			return s, err
		}
		s.trees = append(s.trees, t)
	}
	for i := range 3 {
		t, err := makeTree(n, fmt.Sprintf("treeversion%d", i), 60, r, bytes)
		if err != nil {
			return s, err
		}
		s.treeVersions = append(s.treeVersions, t)
	}
	s.buffer = make([]byte, sourceBufferBytes)
	_, err = io.ReadFull(bytes, s.buffer)
	return s, err
}

// newNoise is an endless reader of random bytes.
func newNoise(r *rand.Rand) io.Reader {
	var key [32]byte
	for i := range key {
		key[i] = byte(r.Uint32())
	}
	return rand.NewChaCha8(key)
}

// writeNoise makes a file of random bytes and returns its value in a survey.
func writeNoise(path string, size int64, bytes io.Reader) (string, error) {
	f, err := os.Create(path)
	if err != nil {
		return "", fmt.Errorf("making a source: %w", err)
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.CopyN(io.MultiWriter(f, h), bytes, size); err != nil {
		return "", fmt.Errorf("making a source: %w", err)
	}
	if err := f.Close(); err != nil {
		return "", fmt.Errorf("making a source: %w", err)
	}
	return "file " + hex.EncodeToString(h.Sum(nil)), nil
}

// redate gives a file some time of modification in the last three years, for
// the policies that compare them.
func redate(path string, r *rand.Rand) error {
	at := time.Now().Add(-between(r, time.Hour, 3*365*24*time.Hour))
	if err := os.Chtimes(path, at, at); err != nil {
		return fmt.Errorf("making a source: %w", err)
	}
	return nil
}

func makeFile(n *node, name string, size int64, bytes io.Reader) (*source, error) {
	what, err := writeNoise(n.path("data", name), size, bytes)
	return &source{node: n, name: name, bytes: size, has: survey{"": what}}, err
}

// makeTree makes a tree of mostly small files, some larger than what travels
// in groups, with an empty directory and symbolic links.
func makeTree(n *node, name string, files int, r *rand.Rand, bytes io.Reader) (*source, error) {
	s := &source{node: n, name: name, tree: true, has: survey{}}
	for _, dir := range []string{"", "d0", "d1", "d1/deep", "d1/deep/deeper", "empty"} {
		if err := os.MkdirAll(n.path("data", name, dir), 0o755); err != nil {
			return nil, fmt.Errorf("making a source: %w", err)
		}
		if dir != "" {
			s.has[dir] = "dir"
		}
	}
	dirs := []string{"", "d0", "d1", "d1/deep", "d1/deep/deeper"}
	for i := range files {
		size := r.Int64N(20_000)
		if i%25 == 24 {
			size = 300<<10 + r.Int64N(2<<20)
		}
		rel := filepath.Join(dirs[i%len(dirs)], fmt.Sprintf("f%04d", i))
		what, err := writeNoise(n.path("data", name, rel), size, bytes)
		if err != nil {
			return nil, err
		}
		if err := redate(n.path("data", name, rel), r); err != nil {
			return nil, err
		}
		s.has[rel] = what
		s.bytes += size
	}
	for _, link := range []string{"link", "d1/link"} {
		if err := os.Symlink("f0001", n.path("data", name, link)); err != nil {
			return nil, fmt.Errorf("making a source: %w", err)
		}
		s.has[link] = "link f0001"
	}
	return s, nil
}
