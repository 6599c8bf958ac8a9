package image

import (
	"fmt"
	"io"
	"io/fs"
)

// archive writes a cpio archive of the "newc" format, which the kernel unpacks
// as its first root (Documentation/driver-api/early-userspace/buffer-format).
// It is not compressed: emulated, unpacking costs more than reading.
type archive struct {
	w     io.Writer
	inode uint32
	err   error // the first; later calls do nothing
}

// Types of cpio's mode field, those of stat(2).
const (
	cpioDirectory = 0o040000
	cpioCharacter = 0o020000
	cpioRegular   = 0o100000
)

// directory adds one; its parent must have been added.
func (a *archive) directory(name string) {
	a.entry(name, cpioDirectory|0o755, 0, 0, nil)
}

// file adds a regular file.
func (a *archive) file(name string, mode fs.FileMode, content []byte) {
	a.entry(name, cpioRegular|uint32(mode.Perm()), 0, 0, content)
}

// character adds a character device.
func (a *archive) character(name string, mode fs.FileMode, major, minor uint32) {
	a.entry(name, cpioCharacter|uint32(mode.Perm()), major, minor, nil)
}

// close ends the archive and returns the first error.
func (a *archive) close() error {
	a.entry("TRAILER!!!", 0, 0, 0, nil)
	return a.err
}

func (a *archive) entry(name string, mode, major, minor uint32, content []byte) {
	if a.err != nil {
		return
	}
	a.inode++
	header := fmt.Sprintf("070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%s\x00",
		a.inode, mode, 0, 0, 1, 0, len(content), 0, 0, major, minor, len(name)+1, 0, name)
	for _, part := range [][]byte{[]byte(header), padding(len(header)), content, padding(len(content))} {
		if _, err := a.w.Write(part); err != nil {
			a.err = fmt.Errorf("write the initramfs: %w", err)
			return
		}
	}
}

// padding fills up to four bytes, which headers and contents are aligned to.
func padding(n int) []byte { return make([]byte, (4-n%4)%4) }
