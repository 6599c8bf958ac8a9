package buffer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// recordVersion is the version that is written, and the only one read.
const recordVersion = 1

// maxRecordBytes bounds a record: two lists of maxNames names and little else.
const maxRecordBytes = 1 << 20

// record is what the state directory knows of a buffer.
type record struct {
	Version   int         `json:"v"`
	Name      string      `json:"name"`
	Bytes     int64       `json:"bytes"`
	PageSize  PageSize    `json:"page_size"`
	NUMANode  int         `json:"numa_node"`
	Mode      fs.FileMode `json:"mode"`
	Group     string      `json:"group,omitempty"`
	Read      []string    `json:"read,omitempty"`
	Write     []string    `json:"write,omitempty"`
	Owner     string      `json:"owner,omitempty"`
	CreatedAt time.Time   `json:"created_at"`

	// Whole is false from before the file is made until it can be used, and
	// again from before it is removed: a process that finds it false removes
	// what is left.
	Whole bool `json:"whole"`
	// Again says of one that is not whole that it was before, and that its
	// memory was gone: a process that finds it makes it once more.
	Again bool   `json:"again,omitempty"`
	Path  string `json:"path"`
	Inode inode  `json:"inode"`
	// Boot is the host's boot_id when the file was made: no memory outlives it,
	// and inode numbers begin again.
	Boot       string `json:"boot"`
	FileBytes  int64  `json:"file_bytes"`
	HugeBytes  int64  `json:"huge_bytes"` // the mount's page size; 0 is tmpfs
	Reason     string `json:"reason"`     // for the place
	Generation uint64 `json:"generation"`
	// Writing is true while the content may be neither of two generations': a
	// process that finds it true goes on to the next.
	Writing bool `json:"writing"`
}

func newRecord(s Spec) record {
	return record{Version: recordVersion, Name: s.Name, Bytes: s.Bytes, PageSize: s.PageSize, NUMANode: s.NUMANode, Mode: s.Mode,
		Group: s.Group, Read: s.Read, Write: s.Write, Owner: s.Owner}
}

func (rec record) spec() Spec {
	return Spec{Name: rec.Name, Bytes: rec.Bytes, PageSize: rec.PageSize, NUMANode: rec.NUMANode, Mode: rec.Mode,
		Group: rec.Group, Read: rec.Read, Write: rec.Write, Owner: rec.Owner}
}

// nextGeneration is larger than any before, of this buffer or of an earlier one
// of its name: it counts microseconds of the clock, and one by one where the
// clock stands still or was set back. Below 2^53 until the year 2255.
func nextGeneration(last uint64, now time.Time) uint64 {
	return max(last+1, uint64(max(now.UnixMicro(), 0)))
}

// store keeps records in files of a directory, one for each buffer.
type store struct{ dir string }

func openStore(stateDir string) (*store, error) {
	dir := filepath.Join(stateDir, "buffers")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("%w: %w; make it writable for the user mover runs as", ErrBadState, err)
	}
	return &store{dir: dir}, nil
}

const recordSuffix, newSuffix = ".json", ".new"

func (s *store) file(name string) string { return filepath.Join(s.dir, name+recordSuffix) }

// save replaces the buffer's record in one step. A synced one outlives a power
// cut. What is not synced outlives the process, and that is as long as the
// memory it tells of.
func (s *store) save(rec record, sync bool) error {
	text, err := json.Marshal(rec)
	if err != nil {
		return fmt.Errorf("record of buffer %s: %w", rec.Name, err)
	}
	// One name for the new record: whoever holds the buffer's turn is alone.
	name := s.file(rec.Name)
	f, err := os.OpenFile(name+newSuffix, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrBadState, err)
	}
	_, err = f.Write(text)
	if err == nil && sync {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(name+newSuffix, name)
	}
	if err == nil && sync {
		err = s.syncDir()
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrBadState, err)
	}
	return nil
}

func (s *store) remove(name string) error {
	if err := os.Remove(s.file(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %w", ErrBadState, err)
	}
	return s.syncDir()
}

func (s *store) syncDir() error {
	d, err := os.Open(s.dir)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrBadState, err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("%w: sync %s: %w", ErrBadState, s.dir, err)
	}
	return nil
}

// load reads every record, by name. What cannot be read is a Problem each.
func (s *store) load() (records []record, problems []Problem, err error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrBadState, err)
	}
	for _, e := range entries {
		full := filepath.Join(s.dir, e.Name())
		if strings.HasSuffix(e.Name(), recordSuffix+newSuffix) {
			_ = os.Remove(full) // never became the record
			continue
		}
		name, ok := strings.CutSuffix(e.Name(), recordSuffix)
		if !ok {
			continue
		}
		rec, err := readRecord(full)
		if err == nil && rec.Name != name {
			err = fmt.Errorf("it is of buffer %.80q", rec.Name)
		}
		if err != nil {
			problems = append(problems, Problem{Buffer: e.Name(), Kind: Unreadable,
				Err: fmt.Errorf("record %s: %w; its buffer is left alone: remove the record, and the buffer's file, to give it up", full, err)})
			continue
		}
		records = append(records, rec)
	}
	return records, problems, nil
}

func readRecord(path string) (record, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return record{}, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxRecordBytes {
		return record{}, errors.New("not a file of this program")
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return record{}, err
	}
	return parseRecord(text)
}

// parseRecord reads a record and believes nothing of it.
func parseRecord(text []byte) (record, error) {
	var version struct {
		V int `json:"v"`
	}
	if err := json.Unmarshal(text, &version); err != nil {
		return record{}, err
	}
	if version.V != recordVersion {
		return record{}, fmt.Errorf("version %d is not known to this program", version.V)
	}
	var rec record
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&rec); err != nil {
		return record{}, err
	}
	s, err := rec.spec().normal()
	if err != nil {
		return record{}, err
	}
	if !s.same(rec.spec()) || !filepath.IsAbs(rec.Path) || rec.Path != filepath.Clean(rec.Path) || rec.FileBytes < rec.Bytes ||
		rec.FileBytes > 2*MaxBytes || rec.HugeBytes != 0 && rec.HugeBytes != 2<<20 && rec.HugeBytes != 1<<30 || rec.Generation >= 1<<62 {
		return record{}, errors.New("it is damaged")
	}
	return rec, nil
}
