package node

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"mover/fileio"
	"mover/job"
	"mover/reason"
)

// spooled is an entry as it travels, and of a file that has several names what
// finds it again at the source.
type spooled struct {
	job.GroupEntry
	Inode fileio.Inode
}

// file is the entry as the walk found it.
func (s *spooled) file() fileio.Entry {
	e := fileio.Entry{
		Rel: string(s.Path), Kind: fileio.KindFile, Size: s.Size, Mode: fs.FileMode(s.Mode), MTime: time.Unix(0, s.MtimeNS),
		UID: int(s.UID), GID: int(s.GID), Inode: s.Inode, NLink: 2, // or more
	}
	e.Xattrs = fileXattrs(s.Xattrs)
	return e
}

// spool keeps entries of a tree until their time comes, in a file without a
// name: there may be millions. One goroutine uses it.
type spool struct {
	file *os.File
	w    *bufio.Writer
	enc  *json.Encoder
	n    int
}

// newSpool makes an empty one in the state directory.
func newSpool(dir string) (*spool, error) {
	f, err := os.CreateTemp(dir, ".spool-*")
	if err == nil {
		err = os.Remove(f.Name())
	}
	if err != nil {
		return nil, spoolFailure(err)
	}
	s := &spool{file: f, w: bufio.NewWriterSize(f, 64<<10)}
	s.enc = json.NewEncoder(s.w)
	return s, nil
}

func (s *spool) put(e spooled) error {
	s.n++
	if err := s.enc.Encode(e); err != nil {
		return spoolFailure(err)
	}
	return nil
}

// each calls f with all entries, in order.
func (s *spool) each(f func(spooled) error) error {
	err := s.w.Flush()
	if err == nil {
		_, err = s.file.Seek(0, io.SeekStart)
	}
	dec := json.NewDecoder(bufio.NewReaderSize(s.file, 64<<10))
	for range s.n {
		var e spooled
		if err == nil {
			err = dec.Decode(&e)
		}
		if err != nil {
			return spoolFailure(err)
		}
		if err := f(e); err != nil {
			return err
		}
	}
	return nil
}

// spoolFailure is what a failure to write or read a spool means for its job.
func spoolFailure(err error) *reason.Error {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return reason.New(reason.NoSpace, "node.state_dir, where a tree's hard links and directories wait: %w; free space there", err)
	}
	return reason.New(reason.IOError, "node.state_dir, where a tree's hard links and directories wait: %w; look at its disk", err)
}

func (s *spool) close() { _ = s.file.Close() }
