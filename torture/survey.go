//go:build linux

package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// survey is what is at a path: for a directory each entry below it, for
// anything else one entry named "". A value is the kind and what stands for
// the content: "dir", "link TARGET", "file SHA256".
type survey map[string]string

// partials counts mover's partial files, which a survey leaves out.
type partials int

// look surveys a path. What is not there has no entries. An entry that goes
// away meanwhile is left out, as a partial file may.
func look(root string) (survey, partials, error) {
	found, count := survey{}, partials(0)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if isPartial(d.Name()) {
			count++
			return nil
		}
		rel := strings.TrimPrefix(strings.TrimPrefix(path, root), "/")
		what, err := describe(path, d)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if rel == "" && d.IsDir() {
			return nil // a directory is told by what is in it
		}
		found[rel] = what
		return nil
	})
	if err != nil {
		return nil, 0, fmt.Errorf("looking at %s: %w", root, err)
	}
	return found, count, nil
}

func isPartial(name string) bool {
	return strings.HasPrefix(name, ".mover.") && strings.HasSuffix(name, ".partial")
}

// describe is one entry's value in a survey.
func describe(path string, d fs.DirEntry) (string, error) {
	switch {
	case d.IsDir():
		return "dir", nil
	case d.Type() == fs.ModeSymlink:
		target, err := os.Readlink(path)
		return "link " + target, err
	case !d.Type().IsRegular():
		return "other " + d.Type().String(), nil
	}
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	sum, err := sumOf(f)
	return "file " + sum, err
}

func sumOf(r io.Reader) (string, error) {
	h := sha256.New()
	if _, err := io.Copy(h, r); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// differs says how found is not exactly want, "" if it is.
func (want survey) differs(found survey) string {
	for rel, what := range want {
		if found[rel] == "" {
			return fmt.Sprintf("%q is missing", rel)
		}
		if found[rel] != what {
			return fmt.Sprintf("%q is %s, its source is %s", rel, found[rel], what)
		}
	}
	return want.hasAll(found)
}

// hasAll says what of found is not as in want, "" if all is; some may be
// missing.
func (want survey) hasAll(found survey) string {
	for rel, what := range found {
		if want[rel] != what {
			return fmt.Sprintf("%q is %s, not what was sent (%q)", rel, what, want[rel])
		}
	}
	return ""
}
