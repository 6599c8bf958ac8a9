package buffer

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"mover/reason"
)

// What the engine wants; it is named here as engine.Source and engine.Sink are.
var (
	_ interface {
		ReadAt(p []byte, offset int64) (int, error)
		Verify(crc uint32) error
	} = (*Lease)(nil)
	_ io.WriterAt   = (*Lease)(nil)
	_ io.ReaderFrom = (*Lease)(nil)
	_ io.WriterTo   = (*Lease)(nil)
)

func TestReadAndWrite(t *testing.T) {
	r, _ := newRegistry(t)
	create(t, r, small("a"))
	l := lease(t, r, "a", 1000, 3000, true)
	text := bytes.Repeat([]byte("0123456789"), 300)
	if n, err := l.WriteAt(text[:1000], 0); n != 1000 || err != nil {
		t.Fatal(n, err)
	}
	if n, err := l.WriteAt(text[1000:], 1000); n != 2000 || err != nil {
		t.Fatal(n, err)
	}
	for _, c := range []struct{ offset, length int64 }{{-1, 1}, {0, 3001}, {3000, 1}, {3001, 0}, {1 << 62, 1}} {
		n, err := l.WriteAt(make([]byte, c.length), c.offset)
		var outside *RangeError
		if n != 0 || reason.Of(err) != reason.NoSpace || !errors.As(err, &outside) {
			t.Errorf("%+v: %d, %v", c, n, err)
		}
	}
	all := make([]byte, 5000)
	whole := lease(t, r, "a", 0, 900, false)
	if n, err := whole.ReadAt(all[:900], 0); n != 900 || err != nil || !zeroed(all[:900]) {
		t.Errorf("beside: %d, %v", n, err)
	}
	if n, err := l.ReadAt(all[:3000], 0); n != 3000 || err != nil || !bytes.Equal(all[:3000], text) {
		t.Errorf("%d, %v", n, err)
	}
	if n, err := l.ReadAt(all, 2990); n != 10 || err != io.EOF {
		t.Errorf("over the end: %d, %v", n, err)
	}
	if n, err := l.ReadAt(all, 4000); n != 0 || err != io.EOF {
		t.Errorf("behind the end: %d, %v", n, err)
	}
	if n, err := l.ReadAt(all, -1); n != 0 || reason.Of(err) != reason.Internal {
		t.Errorf("before the begin: %d, %v", n, err)
	}
	if err := iotest.TestReader(io.NewSectionReader(l, 0, 3000), text); err != nil {
		t.Error(err)
	}
}

func TestStreams(t *testing.T) {
	r, _ := newRegistry(t)
	create(t, r, small("a"))
	text := bytes.Repeat([]byte("0123456789abcdef"), 45_000) // neither a multiple of what is copied at a time
	l := lease(t, r, "a", 77, int64(len(text)), true)
	if n, err := l.ReadFrom(iotest.HalfReader(bytes.NewReader(text))); n != int64(len(text)) || err != nil {
		t.Fatal(n, err)
	}
	var got bytes.Buffer
	if n, err := l.WriteTo(&got); n != int64(len(text)) || err != nil || !bytes.Equal(got.Bytes(), text) {
		t.Fatal(n, err)
	}
	if n, err := l.ReadFrom(strings.NewReader("short")); n != 5 || err != nil {
		t.Errorf("short: %d, %v", n, err)
	}
	if n, err := l.ReadFrom(io.MultiReader(bytes.NewReader(text), strings.NewReader("!"))); n != int64(len(text)) || !errors.Is(err, ErrTooLong) {
		t.Errorf("long: %d, %v", n, err)
	}
	// A body that was cut off is not the end of it.
	if n, err := l.ReadFrom(io.MultiReader(strings.NewReader("abc"), iotest.ErrReader(io.ErrUnexpectedEOF))); n != 3 || err != io.ErrUnexpectedEOF {
		t.Errorf("cut off: %d, %v", n, err)
	}
	if _, err := l.ReadFrom(idleReader{}); err != io.ErrNoProgress {
		t.Errorf("idle: %v", err)
	}
	if _, err := l.WriteTo(failingWriter{}); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("failing writer: %v", err)
	}
	l.Release()

	shared := lease(t, r, "a", 77, 1000, false)
	w := httptest.NewRecorder()
	q := httptest.NewRequest("GET", "/", nil)
	q.Header.Set("Range", "bytes=16-31")
	info, err := r.Get("a")
	if err != nil {
		t.Fatal(err)
	}
	http.ServeContent(w, q, "", info.CreatedAt, io.NewSectionReader(shared, 0, shared.Info().Length))
	if w.Code != http.StatusPartialContent || w.Body.String() != "0123456789abcdef" {
		t.Errorf("%d %q", w.Code, w.Body)
	}
}

type idleReader struct{}

func (idleReader) Read([]byte) (int, error) { return 0, nil }

type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

// TestVerify: a program that writes to the mapped file while it is read is found out.
func TestVerify(t *testing.T) {
	r, _ := newRegistry(t)
	info := create(t, r, small("a"))
	l := lease(t, r, "a", 100, 500_000, false)
	crc, err := l.Checksum()
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(info.Path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	write := func(at int64) {
		t.Helper()
		if _, err := f.WriteAt([]byte{1}, at); err != nil {
			t.Fatal(err)
		}
	}
	write(99)
	write(500_100)
	if err := l.Verify(crc); err != nil {
		t.Errorf("beside the range: %v", err)
	}
	write(500_099)
	if err := l.Verify(crc); reason.Of(err) != reason.SourceChanged {
		t.Errorf("in the range: %v", err)
	}
	if err := l.Verify(0); err != nil {
		t.Errorf("without a checksum: %v", err)
	}
}

// TestTruncated: a program that makes the file shorter gets an error for everybody, and ends nobody.
func TestTruncated(t *testing.T) {
	r, h := newRegistry(t)
	info := create(t, r, small("a"))
	l := lease(t, r, "a", 0, 1<<20, true)
	if err := os.Truncate(info.Path, 8192); err != nil {
		t.Fatal(err)
	}
	p := make([]byte, 100_000)
	_, readErr := l.ReadAt(p, 0)
	_, writeErr := l.WriteAt(p, 500_000)
	_, sumErr := l.Checksum()
	_, toErr := l.WriteTo(io.Discard)
	_, fromErr := l.ReadFrom(bytes.NewReader(p))
	_, leaseErr := r.Lease(LeaseRequest{Name: "a"})
	for what, err := range map[string]error{"read": readErr, "write": writeErr, "sum": sumErr, "verify": l.Verify(1), "verify without": l.Verify(0),
		"to": toErr, "from": fromErr, "lease": leaseErr} {
		wantError(t, err, reason.IOError, ErrTruncated)
		if err == nil || !strings.Contains(err.Error(), "delete the buffer") {
			t.Errorf("%s: %v", what, err)
		}
	}
	// The look at the length comes too early: the fault itself.
	err := Guard(l.Memory(), func() error { p[0] = l.Memory()[1<<19]; return nil })
	if !errors.Is(err, ErrTruncated) {
		t.Errorf("Guard: %v", err)
	}
	err = Guard(l.Memory(), func() error { copy(l.Memory()[1<<19:], p); return nil })
	if !errors.Is(err, ErrTruncated) {
		t.Errorf("Guard: %v", err)
	}
	if got, err := r.Get("a"); err != nil || !strings.Contains(got.Problem, "truncated") {
		t.Errorf("%+v, %v", got, err)
	}
	l.Release()
	if err := r.Delete(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	h.wantFiles(t)
	create(t, r, small("a"))
	lease(t, r, "a", 0, 1<<20, false)
}

// TestTruncatedMeanwhile makes the file shorter and longer while it is copied, so that faults come in the middle.
func TestTruncatedMeanwhile(t *testing.T) {
	r, _ := newRegistry(t)
	info := create(t, r, small("a"))
	l := lease(t, r, "a", 0, 1<<20, true)
	stop := make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		defer close(stop)
		for range 300 {
			if err := errors.Join(os.Truncate(info.Path, 0), os.Truncate(info.Path, info.MappedBytes)); err != nil {
				t.Error(err)
			}
		}
	})
	for range 2 {
		all.Go(func() {
			p := make([]byte, 1<<20)
			for {
				select {
				case <-stop:
					return
				default:
				}
				_, readErr := l.ReadAt(p, 0)
				_, writeErr := l.WriteAt(p, 0)
				_, sumErr := l.Checksum()
				for _, err := range []error{readErr, writeErr, sumErr} {
					if err != nil && !errors.Is(err, ErrTruncated) {
						t.Error(err)
					}
				}
			}
		})
	}
	all.Wait()
	if _, err := l.ReadAt(make([]byte, 1<<20), 0); err != nil {
		t.Errorf("whole again: %v", err)
	}
}

func TestRemovedByAnother(t *testing.T) {
	r, h := newRegistry(t)
	info := create(t, r, small("a"))
	l := lease(t, r, "a", 0, 100, false)
	if err := os.Remove(info.Path); err != nil {
		t.Fatal(err)
	}
	if _, err := l.ReadAt(make([]byte, 100), 0); err != nil {
		t.Errorf("its memory is there all the same: %v", err)
	}
	_, err := r.Lease(LeaseRequest{Name: "a"})
	wantError(t, err, reason.IOError, ErrUnavailable)
	l.Release()
	if err := r.Delete(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	h.wantFiles(t)
}

func TestGuardPassesOn(t *testing.T) {
	mine := errors.New("mine")
	if err := Guard(nil, func() error { return mine }); err != mine {
		t.Error(err)
	}
	r, _ := newRegistry(t)
	info := create(t, r, small("a"))
	l := lease(t, r, "a", 0, 1<<20, true)
	if err := os.Truncate(info.Path, 0); err != nil {
		t.Fatal(err)
	}
	for name, f := range map[string]func() error{
		"a panic":        func() error { panic("mine") },
		"nil":            func() error { var p *int; *p = 1; return nil },
		"others' memory": func() error { return Guard(l.Memory()[:4096], func() error { l.Memory()[8192] = 1; return nil }) },
		"an index":       func() error { i := 5; _ = make([]int, 2)[i]; return nil },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s was swallowed", name)
				}
			}()
			_ = Guard(l.Memory()[:4096], f)
		}()
	}
}
