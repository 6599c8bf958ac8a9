package main

import (
	wire "encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// fuseServer is a file system in memory that can give no name without a race:
// it has neither link(2) nor RENAME_NOREPLACE. It speaks the kernel's protocol
// (linux/fuse.h), as little of it as files in one directory need; what it
// answers with ENOSYS the kernel does without.
type fuseServer struct {
	dev int

	mu    sync.Mutex
	files map[uint64]*fuseFile
	dir   map[string]uint64
	next  uint64
}

type fuseFile struct {
	data  []byte
	mode  uint32
	links uint32
	mtime uint64 // seconds
	nsec  uint32
}

// The operations of the protocol that are answered.
const (
	fuseLookup      = 1
	fuseForget      = 2
	fuseGetattr     = 3
	fuseSetattr     = 4
	fuseMknod       = 8
	fuseUnlink      = 10
	fuseLink        = 13
	fuseRead        = 15
	fuseWrite       = 16
	fuseStatfs      = 17
	fuseInit        = 26
	fuseDestroy     = 38
	fuseBatchForget = 42
	fuseRename2     = 45
)

const (
	fuseRoot      = 1
	fuseInHeader  = 40
	fuseMaxWrite  = 128 << 10
	fuseBufBytes  = fuseMaxWrite + 4096
	fuseMaxFile   = 64 << 20
	fuseNameBytes = 255
)

// serveFuse mounts a fuseServer at dir until the test ends. Without the right,
// or the device, it returns why not.
func serveFuse(t *testing.T, dir string) (*fuseServer, string) {
	t.Helper()
	dev, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Sprintf("no FUSE here: /dev/fuse: %v", err)
	}
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", dev)
	if err := unix.Mount("mover-test", dir, "fuse", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		unix.Close(dev)
		return nil, fmt.Sprintf("no FUSE here: mount: %v", err)
	}
	s := &fuseServer{dev: dev, files: map[uint64]*fuseFile{fuseRoot: {mode: unix.S_IFDIR | 0o755, links: 2}}, dir: map[string]uint64{}, next: fuseRoot + 1}
	done := make(chan error, 1)
	go func() { done <- s.serve() }()
	t.Cleanup(func() {
		// Lazily: a node that the test had to kill may be about to let go of it.
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
		if err := <-done; err != nil {
			t.Errorf("FUSE server: %v", err)
		}
		unix.Close(dev)
	})
	return s, ""
}

// names are those in its directory.
func (s *fuseServer) names() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.dir))
}

// serve answers until the file system is unmounted.
func (s *fuseServer) serve() error {
	in := make([]byte, fuseBufBytes)
	for {
		n, err := unix.Read(s.dev, in)
		switch {
		case errors.Is(err, unix.ENODEV): // unmounted
			return nil
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.ENOENT), errors.Is(err, unix.EAGAIN):
			continue // the request was interrupted
		case err != nil:
			return err
		case n < fuseInHeader:
			return fmt.Errorf("a request of %d bytes", n)
		}
		op := wire.NativeEndian.Uint32(in[4:])
		unique, node := wire.NativeEndian.Uint64(in[8:]), wire.NativeEndian.Uint64(in[16:])
		if op == fuseForget || op == fuseBatchForget {
			continue // has no answer
		}
		body, errno := s.answer(op, node, in[fuseInHeader:n])
		out := wire.NativeEndian.AppendUint32(nil, uint32(16+len(body)))
		out = wire.NativeEndian.AppendUint32(out, uint32(-int32(errno)))
		out = wire.NativeEndian.AppendUint64(out, unique)
		// ENOENT: whoever asked was killed meanwhile.
		if _, err := unix.Write(s.dev, append(out, body...)); err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENODEV) {
			return fmt.Errorf("answer to operation %d: %w", op, err)
		}
	}
}

func (s *fuseServer) answer(op uint32, node uint64, in []byte) ([]byte, unix.Errno) {
	s.mu.Lock()
	defer s.mu.Unlock()
	u32 := func(at int) uint32 { return wire.NativeEndian.Uint32(in[at:]) }
	u64 := func(at int) uint64 { return wire.NativeEndian.Uint64(in[at:]) }
	text := func(at int) string { name, _, _ := strings.Cut(string(in[at:]), "\x00"); return name }
	f := s.files[node]
	switch {
	case op == fuseInit:
		return fuseWords(7, 31, u32(8), 0, 0, fuseMaxWrite, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0), 0
	case op == fuseDestroy:
		return nil, 0
	case op == fuseStatfs:
		const blocks = 1 << 20 // of 4 KiB, all free
		return append(fuseLongs(blocks, blocks, blocks, 1<<20, 1<<20), fuseWords(4096, fuseNameBytes, 4096, 0, 0, 0, 0, 0, 0, 0)...), 0
	case f == nil:
		return nil, unix.ENOENT
	case op == fuseLookup:
		return s.entry(s.dir[text(0)])
	case op == fuseMknod:
		return s.make(text(16), u32(0))
	case op == fuseUnlink:
		return nil, s.unlink(text(0))
	case op == fuseLink:
		return nil, unix.EPERM
	case op == fuseRename2:
		return nil, unix.EINVAL // it has flags; without it would be RENAME
	case op == fuseGetattr:
		return append(fuseLongs(0, 0), attr(node, f)...), 0
	case op == fuseSetattr:
		return s.setattr(node, f, u32(0), u64(16), u64(40), u32(60), u32(68))
	case op == fuseRead:
		at := min(u64(8), uint64(len(f.data)))
		return slices.Clone(f.data[at:min(at+uint64(u32(16)), uint64(len(f.data)))]), 0
	case op == fuseWrite:
		at, data := u64(8), in[40:]
		if errno := f.resize(max(uint64(len(f.data)), at+uint64(len(data)))); errno != 0 {
			return nil, errno
		}
		copy(f.data[at:], data)
		return fuseWords(uint32(len(data)), 0), 0
	}
	return nil, unix.ENOSYS
}

func (s *fuseServer) make(name string, mode uint32) ([]byte, unix.Errno) {
	if _, taken := s.dir[name]; taken {
		return nil, unix.EEXIST
	}
	if mode&unix.S_IFMT != unix.S_IFREG {
		return nil, unix.EPERM
	}
	id := s.next
	s.next++
	s.files[id], s.dir[name] = &fuseFile{mode: mode, links: 1}, id
	return s.entry(id)
}

// unlink keeps the file: it may be open, and the test is short.
func (s *fuseServer) unlink(name string) unix.Errno {
	f := s.files[s.dir[name]]
	if f == nil {
		return unix.ENOENT
	}
	f.links = 0
	delete(s.dir, name)
	return 0
}

func (s *fuseServer) setattr(node uint64, f *fuseFile, valid uint32, size, mtime uint64, nsec, mode uint32) ([]byte, unix.Errno) {
	if valid&1 != 0 {
		f.mode = f.mode&unix.S_IFMT | mode&0o7777
	}
	if valid&8 != 0 {
		if errno := f.resize(size); errno != 0 {
			return nil, errno
		}
	}
	if valid&32 != 0 {
		f.mtime, f.nsec = mtime, nsec
	}
	return append(fuseLongs(0, 0), attr(node, f)...), 0
}

func (f *fuseFile) resize(size uint64) unix.Errno {
	if size > fuseMaxFile {
		return unix.EFBIG
	}
	if more := int(size) - len(f.data); more > 0 {
		f.data = append(f.data, make([]byte, more)...)
	}
	f.data = f.data[:size]
	return 0
}

// entry is struct fuse_entry_out; nothing in it is kept by the kernel for any
// time.
func (s *fuseServer) entry(id uint64) ([]byte, unix.Errno) {
	f := s.files[id]
	if f == nil {
		return nil, unix.ENOENT
	}
	return append(fuseLongs(id, 0, 0, 0, 0), attr(id, f)...), 0
}

// attr is struct fuse_attr.
func attr(id uint64, f *fuseFile) []byte {
	size := uint64(len(f.data))
	return append(fuseLongs(id, size, (size+511)/512, 0, f.mtime, 0), fuseWords(0, f.nsec, 0, f.mode, f.links, 0, 0, 0, 4096, 0)...)
}

func fuseWords(list ...uint32) (out []byte) {
	for _, v := range list {
		out = wire.NativeEndian.AppendUint32(out, v)
	}
	return out
}

func fuseLongs(list ...uint64) (out []byte) {
	for _, v := range list {
		out = wire.NativeEndian.AppendUint64(out, v)
	}
	return out
}
