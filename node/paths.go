package node

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"mover/fileio"
	"mover/job"
	"mover/reason"
)

// splitPath takes a path below a root apart into its directory, "" for the root
// itself, and its last component.
func splitPath(p string) (dir, name string) {
	if dir, name = path.Split(p); dir != "" {
		dir = dir[:len(dir)-1]
	}
	return dir, name
}

// notInside refuses a copy of the directory base of from to dest of to when
// that is the directory itself or lies in it, by whatever name: the copy would
// copy itself.
func notInside(from *fileio.Root, base string, to *fileio.Root, dest string) error {
	src, err := from.Stat(base)
	if err != nil {
		return err
	}
	same := func(info fs.FileInfo, err error) bool { return err == nil && os.SameFile(src, info) }
	inside := false
	for at := path.Clean(dest); !inside; at = path.Dir(at) { // what is missing of it will be made
		inside = same(to.Stat(at))
		if at == "." {
			break
		}
	}
	real, err := filepath.EvalSymlinks(to.Path())
	for err == nil && !inside && real != "/" {
		real = filepath.Dir(real)
		inside = same(os.Stat(real))
	}
	if !inside {
		return nil
	}
	return reason.New(reason.SameFile, "%q in root %s is the source directory or lies in it; choose another destination", dest, to.Name())
}

// tooLong says that an entry of a tree has no path where the tree goes, which
// the source's file system could not tell: base is the tree's, below the
// destination's root.
func tooLong(base, rel string) *reason.Error {
	whole := treePlace{base: base}.path(rel)
	if len(whole) <= job.MaxSubBytes {
		return nil
	}
	return reason.New(reason.NameTooLong, "%.100q... would have a path of %d bytes at the destination, the limit is %d; shorten it, or move it to a shorter path", rel, len(whole), job.MaxSubBytes)
}
