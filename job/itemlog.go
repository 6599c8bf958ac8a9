package job

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"mover/reason"
)

// What became of a job's items is in a file of its own, items/<id>.items in the
// state directory: a header of 8 bytes, then frames of
//
//	length uint32 | CRC32C of the payload uint32 | payload
//
// in little endian, only ever appended to. A frame that is torn, as a crash may
// leave the last, ends the file.
const (
	itemsDir      = "items"
	itemsMagic    = "mvitems\x01" // the last byte is the version
	frameHead     = 8
	maxFrame      = 8 << 10 // a path of PATH_MAX, a detail, and numbers
	itemSinkBytes = 64 << 10
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var errTorn = errors.New("the frame is torn")

// itemLogs are the item files of all jobs.
type itemLogs struct {
	dir string // "" keeps them in mem
	log *slog.Logger

	mu  sync.Mutex
	mem map[ID]*memoryLog
	now map[ID]*itemSink // of attempts under way, to be flushed before reading
}

// itemFile is one job's, open.
type itemFile interface {
	io.ReaderAt
	io.Writer // appends
	io.Closer
	Truncate(size int64) error
	Sync() error
}

func openItemLogs(stateDir string, log *slog.Logger) (*itemLogs, error) {
	l := &itemLogs{log: log, mem: map[ID]*memoryLog{}, now: map[ID]*itemSink{}}
	if stateDir == "" {
		return l, nil
	}
	l.dir = filepath.Join(stateDir, itemsDir)
	if err := os.Mkdir(l.dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("make the directory of items: %w", err)
	}
	return l, nil
}

func (l *itemLogs) path(id ID) string { return filepath.Join(l.dir, id.String()+".items") }

// open opens a job's file; flag is as of os.OpenFile. The error is
// fs.ErrNotExist if there is none and it is not to be made.
func (l *itemLogs) open(id ID, flag int) (itemFile, error) {
	if l.dir != "" {
		return os.OpenFile(l.path(id), flag, 0o600)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	m := l.mem[id]
	if m == nil {
		if flag&os.O_CREATE == 0 {
			return nil, fs.ErrNotExist
		}
		m = &memoryLog{}
		l.mem[id] = m
	}
	return m, nil
}

// remove forgets a job's items.
func (l *itemLogs) remove(id ID) {
	l.mu.Lock()
	delete(l.mem, id)
	l.mu.Unlock()
	if l.dir == "" {
		return
	}
	if err := os.Remove(l.path(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		l.log.Warn("the items of a job that is gone cannot be removed", "job", id, "err", err)
	}
}

// flush writes what an attempt under way has not written yet.
func (l *itemLogs) flush(id ID) {
	l.mu.Lock()
	s := l.now[id]
	l.mu.Unlock()
	if s != nil {
		s.flush()
	}
}

// memoryLog is an item file in memory.
type memoryLog struct {
	mu   sync.Mutex
	data []byte
}

func (m *memoryLog) ReadAt(p []byte, at int64) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return bytes.NewReader(m.data).ReadAt(p, at)
}

func (m *memoryLog) Write(p []byte) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.data = append(m.data, p...)
	return len(p), nil
}

func (m *memoryLog) Truncate(size int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.data = m.data[:size]
	return nil
}

func (m *memoryLog) Sync() error  { return nil }
func (m *memoryLog) Close() error { return nil }

// appendItem appends r as a frame. What is too long to be kept is cut.
func appendItem(b []byte, r *ItemRecord) []byte {
	start := len(b)
	b = append(b, make([]byte, frameHead)...)
	crc, hasCRC := ParseCRC32C(r.CRC32C)
	b = append(b, byte(r.Kind), itemStates[r.State], bit(hasCRC, 1)|bit(r.Reason != nil, 2))
	b = binary.AppendUvarint(b, uint64(r.Attempt))
	b = binary.AppendUvarint(b, uint64(max(r.Bytes, 0)))
	if hasCRC {
		b = binary.LittleEndian.AppendUint32(b, crc)
	}
	if r.Reason != nil {
		b = append(b, bit(r.Reason.Retryable, 1))
		b = binary.AppendUvarint(b, uint64(r.Reason.Code.Wire()))
		b = appendText(b, cleanDetail(r.Reason.Detail))
	}
	b = appendText(b, r.Path[:min(len(r.Path), maxPathBytes)])
	payload := b[start+frameHead:]
	binary.LittleEndian.PutUint32(b[start:], uint32(len(payload)))
	binary.LittleEndian.PutUint32(b[start+4:], crc32.Checksum(payload, castagnoli))
	return b
}

var itemStates = map[ItemState]byte{ItemSucceeded: 1, ItemSkipped: 2, ItemFailed: 3}

// readItem takes a payload apart; the record's path refers to it.
func readItem(payload []byte) (r ItemRecord, ok bool) {
	in := &reader{rest: payload}
	r.Kind = EntryKind(in.byte())
	state := in.byte()
	for s, n := range itemStates {
		if n == state {
			r.State = s
		}
	}
	flags := in.flags(3)
	r.Attempt, r.Bytes = int(in.uint32()), int64(in.uvarint())
	if flags&1 != 0 {
		if b := in.take(4); b != nil {
			r.CRC32C = FormatCRC32C(binary.LittleEndian.Uint32(b))
		}
	}
	if flags&2 != 0 {
		retryable := in.flags(1) != 0
		code, known := reason.FromWire(uint16(in.count(1<<16 - 1)))
		if !known {
			code = reason.Internal
		}
		r.Reason = &Reason{Code: code, Detail: string(in.text(2 * maxDetailBytes)), Retryable: retryable}
	}
	r.Path = in.text(maxPathBytes)
	return r, in.end() == nil && r.State != "" && r.Bytes >= 0
}

// itemReader reads frames from an offset on.
type itemReader struct {
	f   io.ReaderAt
	at  int64 // of the next frame
	buf []byte
	off int64 // of buf in the file
}

// next returns the next record, which is valid until the call after; io.EOF at
// the end, and errTorn for what is not a frame.
func (r *itemReader) next() (ItemRecord, error) {
	head, err := r.bytes(frameHead)
	if err != nil {
		return ItemRecord{}, err
	}
	n, sum := binary.LittleEndian.Uint32(head), binary.LittleEndian.Uint32(head[4:])
	if n > maxFrame {
		return ItemRecord{}, errTorn
	}
	frame, err := r.bytes(frameHead + int(n))
	if err == io.EOF {
		err = errTorn
	}
	if err != nil {
		return ItemRecord{}, err
	}
	payload := frame[frameHead:]
	if crc32.Checksum(payload, castagnoli) != sum {
		return ItemRecord{}, errTorn
	}
	rec, ok := readItem(payload)
	if !ok {
		return ItemRecord{}, errTorn
	}
	r.at += int64(len(frame))
	return rec, nil
}

// bytes returns n bytes at r.at; io.EOF if there is none, errTorn if fewer.
func (r *itemReader) bytes(n int) ([]byte, error) {
	if r.at < r.off || r.at+int64(n) > r.off+int64(len(r.buf)) {
		if cap(r.buf) == 0 {
			r.buf = make([]byte, 64<<10)
		}
		got, err := r.f.ReadAt(r.buf[:cap(r.buf)], r.at)
		if err != nil && err != io.EOF {
			return nil, err
		}
		r.buf, r.off = r.buf[:got], r.at
	}
	b := r.buf[r.at-r.off:]
	switch {
	case len(b) == 0:
		return nil, io.EOF
	case len(b) < n:
		return nil, errTorn
	}
	return b[:n], nil
}

// openReader begins behind the header.
func openReader(f io.ReaderAt) (*itemReader, error) {
	r := &itemReader{f: f}
	head, err := r.bytes(len(itemsMagic))
	if err == nil && string(head) != itemsMagic {
		err = errTorn
	}
	r.at = int64(len(itemsMagic))
	return r, err
}

// hashPath names a path in 128 bits: an accidental or intended collision would
// leave a file behind.
func hashPath(path []byte) [16]byte {
	sum := sha256.Sum256(path)
	return [16]byte(sum[:16])
}
