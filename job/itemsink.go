package job

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"sync"
)

// itemSink is the ItemSink of one attempt. It opens the file when the first
// record comes: most jobs have few.
type itemSink struct {
	logs    *itemLogs
	id      ID
	attempt int

	mu      sync.Mutex
	f       itemFile
	buf     []byte
	written bool
	closed  bool
	failed  error

	load sync.Once
	done [][16]byte // sorted
}

func (l *itemLogs) sink(id ID, attempt int) *itemSink {
	return &itemSink{logs: l, id: id, attempt: attempt}
}

// Add implements ItemSink.
func (s *itemSink) Add(r ItemRecord) {
	r.Attempt = s.attempt
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.failed != nil || !r.State.Valid() || !r.Kind.Valid() {
		return
	}
	if s.f == nil {
		s.open()
	}
	s.buf = appendItem(s.buf, &r)
	if len(s.buf) >= itemSinkBytes {
		s.drain()
	}
}

// open opens the file and cuts off what a crash has torn.
func (s *itemSink) open() {
	f, err := s.logs.open(s.id, os.O_CREATE|os.O_RDWR|os.O_APPEND)
	if err != nil {
		s.fail(err)
		return
	}
	s.f = f
	s.logs.mu.Lock()
	s.logs.now[s.id] = s
	s.logs.mu.Unlock()
	end := int64(0)
	r, err := openReader(f)
	for err == nil {
		end = r.at
		_, err = r.next()
	}
	if end == 0 {
		s.buf = append(s.buf, itemsMagic...)
	}
	if errors.Is(err, errTorn) {
		err = f.Truncate(end)
	}
	if err != nil && err != io.EOF {
		s.fail(err)
	}
}

func (s *itemSink) fail(err error) {
	s.failed = err
	s.buf = nil
	s.logs.log.Error("what became of a job's items cannot be kept; look at the disk of the state directory",
		"job", s.id, "attempt", s.attempt, "err", err)
}

func (s *itemSink) drain() {
	if len(s.buf) == 0 || s.failed != nil {
		return
	}
	if _, err := s.f.Write(s.buf); err != nil {
		s.fail(err)
		return
	}
	s.written = true
	s.buf = s.buf[:0]
}

func (s *itemSink) flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drain()
}

// close makes the attempt's records durable.
func (s *itemSink) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drain()
	s.closed = true
	if s.f == nil {
		return
	}
	s.logs.mu.Lock()
	if s.logs.now[s.id] == s {
		delete(s.logs.now, s.id)
	}
	s.logs.mu.Unlock()
	if s.written && s.failed == nil {
		if err := s.f.Sync(); err != nil {
			s.fail(err)
		}
	}
	s.f.Close()
}

// Done implements ItemSink.
func (s *itemSink) Done(path []byte) bool {
	if s.attempt == 1 {
		return false
	}
	s.load.Do(s.loadDone)
	key := hashPath(path)
	_, found := slices.BinarySearchFunc(s.done, key, func(a, b [16]byte) int { return bytes.Compare(a[:], b[:]) })
	return found
}

func (s *itemSink) loadDone() {
	f, err := s.logs.open(s.id, os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err == nil {
		defer f.Close()
		var r *itemReader
		r, err = openReader(f)
		for err == nil {
			var rec ItemRecord
			if rec, err = r.next(); err == nil && rec.State == ItemSucceeded && rec.Attempt < s.attempt {
				s.done = append(s.done, hashPath(rec.Path))
			}
		}
	}
	if err != io.EOF && !errors.Is(err, errTorn) {
		s.logs.log.Error("what earlier attempts published cannot be read", "job", s.id, "err", err)
	}
	slices.SortFunc(s.done, func(a, b [16]byte) int { return bytes.Compare(a[:], b[:]) })
}

// maxItemScan is how much of a file one page looks through.
const maxItemScan = 8 << 20

// Items returns up to limit (1..MaxPage) records of a job's items that match,
// in the order in which they came, and the token of the next page, "" when
// there is none; a page before the last may be short or empty. An item that
// several attempts tried has a record of each. Errors: ErrNotFound,
// ErrPageToken, *StoreError, ErrClosed.
func (q *Queue) Items(id ID, f ItemFilter, pageToken string, limit int) (page []ItemRecord, next string, err error) {
	var from int64
	if pageToken != "" {
		raw, err := base64.RawURLEncoding.Strict().DecodeString(pageToken)
		if err != nil || len(raw) != 8 {
			return nil, "", ErrPageToken
		}
		if from = int64(binary.BigEndian.Uint64(raw)); from < int64(len(itemsMagic)) {
			return nil, "", ErrPageToken
		}
	}
	if _, err := q.Get(id); err != nil {
		return nil, "", err
	}
	page, at, err := q.items.page(id, f, from, min(max(limit, 1), MaxPage))
	if err != nil && !errors.Is(err, ErrPageToken) {
		q.cfg.Logger.Error("a job's items cannot be read", "job", id, "err", err)
		err = &StoreError{err}
	}
	if at > 0 {
		next = base64.RawURLEncoding.EncodeToString(binary.BigEndian.AppendUint64(nil, uint64(at)))
	}
	return page, next, err
}

// page reads from an offset on, 0 for the beginning; next is 0 at the end.
func (l *itemLogs) page(id ID, f ItemFilter, from int64, limit int) (page []ItemRecord, next int64, err error) {
	page = []ItemRecord{}
	l.flush(id)
	file, err := l.open(id, os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return page, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	defer file.Close()
	r, err := openReader(file)
	if from > 0 {
		r.at = from
	}
	start := r.at
	for err == nil {
		at := r.at
		if len(page) == limit || at-start > maxItemScan {
			// Only a reader that reached a frame knows that there is one.
			if _, err := r.next(); err != nil {
				return page, 0, nil
			}
			return page, at, nil
		}
		var rec ItemRecord
		if rec, err = r.next(); errors.Is(err, errTorn) && at == from {
			return nil, 0, ErrPageToken // or the tail of a crash, which nobody was given
		}
		if err == nil && (f.State == "" || rec.State == f.State) {
			rec.Path = bytes.Clone(rec.Path)
			page = append(page, rec)
		}
	}
	if err != io.EOF && !errors.Is(err, errTorn) {
		return nil, 0, err
	}
	return page, 0, nil
}
