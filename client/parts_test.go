package client

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"mover/api"
	v1 "mover/api/v1"
	"mover/job"
)

// store is one buffer, as a node has it.
type store struct {
	mu         sync.Mutex
	made       bool
	data       []byte
	generation uint64
}

func (s *store) Plan(context.Context, job.Spec, string) (v1.Plan, error) {
	return v1.Plan{Bytes: 10}, nil
}
func (s *store) Drain(_ context.Context, undo bool) (v1.Drain, error) {
	return v1.Drain{Draining: !undo}, nil
}
func (s *store) buffer() v1.Buffer {
	return v1.Buffer{Name: "b", Owner: "a/t", Bytes: int64(len(s.data)), Generation: s.generation}
}
func (s *store) List(context.Context) ([]v1.Buffer, error) { return []v1.Buffer{s.buffer()}, nil }
func (s *store) Get(_ context.Context, name string) (v1.Buffer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if name != "b" || !s.made {
		return v1.Buffer{}, api.ErrNoBuffer
	}
	return s.buffer(), nil
}
func (s *store) Create(_ context.Context, name string, spec v1.BufferSpec, _ string) (v1.Buffer, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.made, s.data, s.generation = true, make([]byte, spec.Bytes), 1
	return s.buffer(), true, nil
}
func (s *store) Delete(context.Context, string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.made = false
	return nil
}
func (s *store) Open(context.Context, string, api.BufferRange, string) (api.BufferData, error) {
	return s, nil
}
func (s *store) Generation() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.generation
}
func (s *store) ReadAt(p []byte, off int64) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return copy(p, s.data[off:]), nil
}
func (s *store) WriteAt(p []byte, off int64) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.generation++
	return copy(s.data[off:], p), nil
}
func (s *store) Close() (uint64, error) { return s.Generation(), nil }

func TestJobActions(t *testing.T) {
	n := newNode(t)
	c := n.client(nil)
	var refused *Error
	s, err := c.Submit(t.Context(), testSpec(), "")
	if err != nil {
		t.Fatal(err)
	}
	<-n.calls
	if _, err := c.Pause(t.Context(), s.ID); err != nil {
		t.Error(err)
	}
	for s.State != job.Paused {
		if s, err = n.queue.Wait(t.Context(), s.ID, s.Version); err != nil {
			t.Fatal(err)
		}
	}
	priority := 9
	if s, err = c.Patch(t.Context(), s.ID, job.Patch{Priority: &priority}, s.Version); err != nil || s.Spec.Priority != 9 {
		t.Errorf("%+v, %v", s.Spec, err)
	}
	if _, err = c.Patch(t.Context(), s.ID, job.Patch{Priority: &priority}, 1); !errors.As(err, &refused) || refused.Code != v1.CodeVersionMismatch {
		t.Errorf("%v", err)
	}
	if s, err = c.Resume(t.Context(), s.ID); err != nil {
		t.Error(err)
	}
	a := <-n.calls
	for _, name := range []string{"x", "y", "z"} {
		a.Items.Add(job.ItemRecord{Path: []byte(name), Kind: job.EntryFile, State: job.ItemSucceeded})
	}
	if _, err := c.Cancel(t.Context(), s.ID); err != nil {
		t.Error(err)
	}
	if s, err = c.Wait(t.Context(), s.ID, nil); err != nil || s.State != job.Canceled {
		t.Errorf("%s, %v", s.State, err)
	}
	var names string
	for r, err := range c.AllItems(t.Context(), s.ID, ItemOptions{Limit: 2}) {
		if err != nil {
			t.Fatal(err)
		}
		names += string(r.Path)
	}
	if names != "xyz" {
		t.Errorf("%q", names)
	}
	if _, err := c.Retry(t.Context(), s.ID); err != nil {
		t.Error(err)
	}
	<-n.calls
	n.results <- nil
	if s, err = c.Wait(t.Context(), s.ID, nil); err != nil || s.State != job.Succeeded {
		t.Errorf("%s, %v", s.State, err)
	}
	var events string
	for e, err := range c.Follow(t.Context(), EventOptions{Job: &s.ID}) {
		if err != nil {
			t.Fatal(err)
		}
		if events += string(e.Type) + " "; e.State == job.Succeeded {
			break
		}
	}
	if !strings.HasPrefix(events, "submitted state ") || !strings.Contains(events, "patched") {
		t.Errorf("%s", events)
	}
	if err := c.Delete(t.Context(), s.ID); err != nil {
		t.Error(err)
	}
	if err := c.Delete(t.Context(), s.ID); !errors.As(err, &refused) || refused.Status != 404 {
		t.Errorf("%v", err)
	}
	for range 3 {
		if _, err := c.Submit(t.Context(), testSpec(), ""); err != nil {
			t.Fatal(err)
		}
	}
	jobs := 0
	for _, err := range c.All(t.Context(), ListOptions{Limit: 1}) {
		if err != nil {
			t.Fatal(err)
		}
		jobs++
	}
	for _, err := range c.All(t.Context(), ListOptions{Limit: 501}) {
		if !errors.As(err, &refused) {
			t.Errorf("%v", err)
		}
		jobs++
	}
	if jobs != 4 {
		t.Errorf("%d", jobs)
	}
}

// TestADeleteWhoseAnswerWasLost is no failure when it is repeated.
func TestADeleteWhoseAnswerWasLost(t *testing.T) {
	n := newNode(t)
	var sent atomic.Int32
	c := n.client(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			resp, err := next.RoundTrip(r)
			if r.Method == http.MethodDelete && sent.Add(1) == 1 && err == nil {
				resp.Body.Close()
				return nil, errors.New("connection reset by peer")
			}
			return resp, err
		})
	})
	s, err := c.Submit(t.Context(), testSpec(), "")
	if err != nil {
		t.Fatal(err)
	}
	<-n.calls
	n.results <- nil
	if _, err := c.Wait(t.Context(), s.ID, nil); err != nil {
		t.Fatal(err)
	}
	if err := c.Delete(t.Context(), s.ID); err != nil || sent.Load() != 2 {
		t.Errorf("%v after %d", err, sent.Load())
	}
}

// cut is a body that breaks after so many bytes.
type cut struct {
	io.ReadCloser
	left int
}

func (c *cut) Read(p []byte) (int, error) {
	if c.left == 0 {
		return 0, errors.New("connection reset by peer")
	}
	n, err := c.ReadCloser.Read(p[:min(len(p), c.left)])
	c.left -= n
	return n, err
}

func TestFollowComesBack(t *testing.T) {
	n := newNode(t)
	c := n.client(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			resp, err := next.RoundTrip(r)
			if err == nil && r.Header.Get("Accept") == "text/event-stream" {
				resp.Body = &cut{resp.Body, 400} // about one event
			}
			return resp, err
		})
	})
	for range 3 {
		if _, err := c.Submit(t.Context(), testSpec(), ""); err != nil {
			t.Fatal(err)
		}
	}
	last, want := uint64(0), n.queue.LastEvent()
	for e, err := range c.Follow(t.Context(), EventOptions{}) {
		if err != nil || e.Seq <= last {
			t.Fatalf("%+v, %v after %d", e, err, last)
		}
		if last = e.Seq; last >= want {
			break
		}
	}
	page, err := c.Events(t.Context(), EventOptions{After: last - 1, Limit: 1})
	if err != nil || len(page.Events) != 1 || page.Events[0].Seq != last {
		t.Errorf("%+v, %v", page, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	var ended error
	for _, err := range c.Follow(ctx, EventOptions{Latest: true}) {
		ended = err
	}
	if !errors.Is(ended, context.DeadlineExceeded) {
		t.Errorf("%v", ended)
	}
	var refused *Error
	for _, err := range c.Follow(t.Context(), EventOptions{Job: &job.ID{1}}) {
		if !errors.As(err, &refused) || refused.Status != 404 {
			t.Errorf("%v", err)
		}
	}
}

func TestBufferDataComesWhole(t *testing.T) {
	n := newNode(t)
	var broken atomic.Int32
	c := n.client(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			resp, err := next.RoundTrip(r)
			if err == nil && r.Method == "GET" && strings.HasSuffix(r.URL.Path, "/data") && broken.Add(-1) >= 0 {
				resp.Body = &cut{resp.Body, 300}
			}
			return resp, err
		})
	})
	if _, err := c.CreateBuffer(t.Context(), "b", v1.BufferSpec{Bytes: 1000}); err != nil {
		t.Fatal(err)
	}
	data := bytes.Repeat([]byte("0123456789"), 100)
	w, err := c.WriteBuffer(t.Context(), "b", 0, 1000, bytes.NewReader(data), 1)
	if err != nil || w.Bytes != 1000 || w.Generation != 2 {
		t.Fatalf("%+v, %v", w, err)
	}
	var refused *Error
	if _, err := c.WriteBuffer(t.Context(), "b", 5, 2, strings.NewReader("xy"), 1); !errors.As(err, &refused) || refused.Status != 412 {
		t.Errorf("%v", err)
	}
	broken.Store(2)
	r, err := c.ReadBuffer(t.Context(), "b", 3, -1)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, data[3:]) || r.Generation() != 2 || r.Remaining() != 0 {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	r.Close()
	// Another content behind the break is not the same data.
	broken.Store(1)
	if r, err = c.ReadBuffer(t.Context(), "b", 0, 900); err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := io.ReadFull(r, make([]byte, 300)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.WriteBuffer(t.Context(), "b", 0, 1, strings.NewReader("x"), 0); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(r); !errors.As(err, &refused) || refused.Status != 412 {
		t.Errorf("%v", err)
	}
	for _, span := range [][2]int64{{1000, 1}, {990, 20}} {
		if r, err := c.ReadBuffer(t.Context(), "b", span[0], span[1]); err == nil {
			r.Close()
			t.Errorf("%v is read", span)
		}
	}
	if _, err := c.WriteBuffer(t.Context(), "b", 999, 2, strings.NewReader("xy"), 0); !errors.As(err, &refused) || refused.Code != v1.CodeBadRange {
		t.Errorf("%v", err)
	}
	if b, err := c.Buffer(t.Context(), "b"); err != nil || b.Bytes != 1000 {
		t.Errorf("%+v, %v", b, err)
	}
	if l, err := c.Buffers(t.Context()); err != nil || len(l.Buffers) != 1 {
		t.Errorf("%+v, %v", l, err)
	}
	if err := c.DeleteBuffer(t.Context(), "b", time.Second); err != nil {
		t.Error(err)
	}
	if _, err := c.Buffer(t.Context(), "../x"); !errors.As(err, &refused) || refused.Status != 404 {
		t.Errorf("%v", err)
	}
	if p, err := c.Plan(t.Context(), testSpec()); err != nil || p.Bytes != 10 {
		t.Errorf("%+v, %v", p, err)
	}
}

func TestUnixSocket(t *testing.T) {
	n := newNode(t)
	dir, err := os.MkdirTemp("", "mover-client-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "s")
	ln, err := api.ListenUnix(path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- n.api.Serve(ctx, ln) }()
	c, err := New(Config{Server: "unix://" + path}) // without a token
	if err != nil {
		t.Fatal(err)
	}
	s, err := c.Submit(t.Context(), testSpec(), "")
	if err != nil || !strings.HasPrefix(s.Owner, "a/uid:") || c.Server() != "unix://"+path {
		t.Errorf("%+v, %v", s, err)
	}
	if d, err := c.Drain(t.Context(), false); err != nil || !d.Draining {
		t.Errorf("%+v, %v", d, err)
	}
	c.Close()
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	var unreachable *UnreachableError
	if _, err := c.Version(t.Context()); !errors.As(err, &unreachable) || !strings.Contains(err.Error(), path) {
		t.Errorf("%v", err)
	}
	for _, bad := range []string{"unix://", "unix://relative/path"} {
		if _, err := New(Config{Server: bad}); err == nil || !strings.Contains(err.Error(), "three slashes") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}
