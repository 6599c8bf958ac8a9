package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"
)

const (
	// treeName is the directory of small files, inside the place's data folder.
	treeName = "small2k"
	// treeFiles and treeFileBytes say what is in it.
	treeFiles     = 2000
	treeFileBytes = 4 << 10
	// treeFolders hold them, evenly.
	treeFolders = 20
)

func (p *place) tree() string { return filepath.Join(p.dir, "data", treeName) }

// treeFile is the path of one of the small files, from the data folder.
func treeFile(i int) string {
	return filepath.Join(treeName, fmt.Sprintf("d%02d", i%treeFolders), fmt.Sprintf("f%04d", i))
}

// fillTree makes the directory of small files. Their bytes are pseudo-random
// and the same in every run; their times lie in the past, so that a tool that
// does not set times is noticed.
func (p *place) fillTree(ctx context.Context) error {
	rng := rand.NewChaCha8([32]byte{'s', 'm', 'a', 'l', 'l'})
	data := make([]byte, treeFileBytes)
	past := time.Unix(1_700_000_000, 0)
	for i := range treeFiles {
		if err := ctx.Err(); err != nil {
			return err
		}
		name := filepath.Join(p.dir, "data", treeFile(i))
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return fmt.Errorf("generating the tree: %w", err)
		}
		_, _ = rng.Read(data) // never fails, by its documentation
		if err := os.WriteFile(name, data, 0o644); err != nil {
			return fmt.Errorf("generating the tree: %w", err)
		}
		if err := os.Chtimes(name, past, past); err != nil {
			return fmt.Errorf("generating the tree: %w", err)
		}
	}
	sum, err := treeSum(ctx, p.tree())
	if err != nil {
		return err
	}
	p.treeSum = sum
	return p.settle()
}

// treeSum is a SHA-256 over everything below top that a copy must have: names,
// kinds, permissions, and of files times (whole seconds) and bytes.
func treeSum(ctx context.Context, top string) (string, error) {
	hash := sha256.New()
	err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil || path == top {
			return err
		}
		rel, err := filepath.Rel(top, path)
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		// Quoted, so that two names are not read as one.
		fmt.Fprintf(hash, "%q %v\n", rel, info.Mode())
		if !info.Mode().IsRegular() {
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		fmt.Fprintf(hash, "%d %d\n", info.ModTime().Unix(), len(data))
		hash.Write(data)
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("hashing the tree %s: %w", top, err)
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}

// remove deletes a copy, file or tree, that may not be there.
func remove(path string) error {
	if err := os.RemoveAll(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing a copy: %w", err)
	}
	return nil
}
