package node

import (
	"bufio"
	"encoding/json"
	"io"
	"os"

	"mover/job"
	"mover/reason"
)

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
		return nil, reason.New(reason.Internal, "node.state_dir: %w; look at its disk", err)
	}
	s := &spool{file: f, w: bufio.NewWriterSize(f, 64<<10)}
	s.enc = json.NewEncoder(s.w)
	return s, nil
}

func (s *spool) put(e job.GroupEntry) error {
	s.n++
	if err := s.enc.Encode(e); err != nil {
		return reason.New(reason.Internal, "node.state_dir: %w; look at its disk", err)
	}
	return nil
}

// each calls f with all entries, in order.
func (s *spool) each(f func(job.GroupEntry) error) error {
	err := s.w.Flush()
	if err == nil {
		_, err = s.file.Seek(0, io.SeekStart)
	}
	dec := json.NewDecoder(bufio.NewReaderSize(s.file, 64<<10))
	for range s.n {
		var e job.GroupEntry
		if err == nil {
			err = dec.Decode(&e)
		}
		if err != nil {
			return reason.New(reason.Internal, "node.state_dir: read back what a walk left: %w", err)
		}
		if err := f(e); err != nil {
			return err
		}
	}
	return nil
}

func (s *spool) close() { _ = s.file.Close() }
