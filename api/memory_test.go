package api

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	v1 "mover/api/v1"
	"mover/reason"
)

// memory is named memory without files: what a node's Buffers does, in a map.
type memory struct {
	mu      sync.Mutex
	buffers map[string]*memoryBuffer
	fail    error // of every call
}

type memoryBuffer struct {
	v1.Buffer
	spec   v1.BufferSpec
	data   []byte
	broken error         // of ReadAt and WriteAt
	idle   chan struct{} // closed when the last lease ends
}

func (m *memory) find(name string) (*memoryBuffer, error) {
	if m.fail != nil {
		return nil, m.fail
	}
	b := m.buffers[name]
	if b == nil {
		return nil, ErrNoBuffer
	}
	return b, nil
}

func (m *memory) List(context.Context) ([]v1.Buffer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []v1.Buffer
	for _, b := range m.buffers {
		list = append(list, b.Buffer)
	}
	return list, m.fail
}

func (m *memory) Get(_ context.Context, name string) (v1.Buffer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	b, err := m.find(name)
	if err != nil {
		return v1.Buffer{}, err
	}
	return b.Buffer, nil
}

func (m *memory) Create(_ context.Context, name string, spec v1.BufferSpec, owner string) (v1.Buffer, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fail != nil {
		return v1.Buffer{}, false, m.fail
	}
	if b := m.buffers[name]; b != nil {
		if !cmp.Equal(b.spec, spec) {
			return v1.Buffer{}, false, ErrBufferConflict
		}
		return b.Buffer, false, nil
	}
	b := &memoryBuffer{spec: spec, data: make([]byte, spec.Bytes), Buffer: v1.Buffer{Name: name, Path: "/dev/shm/x", Bytes: int64(spec.Bytes),
		Generation: 1, Mode: spec.Mode, Owner: owner, Read: spec.Read, Write: spec.Write, CreatedAt: time.Unix(1, 0).UTC()}}
	m.buffers[name] = b
	return b.Buffer, true, nil
}

func (m *memory) Delete(ctx context.Context, name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	b, err := m.find(name)
	if err != nil {
		return err
	}
	if b.Configured {
		return ErrBufferConfig
	}
	for len(b.Leases) > 0 {
		idle := b.idle
		m.mu.Unlock()
		select {
		case <-idle:
			m.mu.Lock()
		case <-ctx.Done():
			m.mu.Lock()
			return ctx.Err()
		}
	}
	delete(m.buffers, name)
	return nil
}

func (m *memory) Open(_ context.Context, name string, r BufferRange, holder string) (BufferData, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	b, err := m.find(name)
	if err != nil {
		return nil, err
	}
	for _, l := range b.Leases {
		if (r.Write || l.Exclusive) && r.Offset < l.Offset+l.Length && l.Offset < r.Offset+r.Length {
			return nil, reason.New(reason.BufferBusy, "bytes %d to %d are held by %s", l.Offset, l.Offset+l.Length, l.Holder)
		}
	}
	if len(b.Leases) == 0 {
		b.idle = make(chan struct{})
	}
	l := &memoryLease{m: m, b: b, lease: v1.BufferLease{Holder: holder, Offset: r.Offset, Length: r.Length, Exclusive: r.Write}, generation: b.Generation}
	b.Leases = append(b.Leases, l.lease)
	return l, nil
}

type memoryLease struct {
	m          *memory
	b          *memoryBuffer
	lease      v1.BufferLease
	generation uint64
	wrote      bool
}

func (l *memoryLease) Generation() uint64 { return l.generation }

func (l *memoryLease) at(p []byte, offset int64) ([]byte, error) {
	if offset < l.lease.Offset || offset+int64(len(p)) > l.lease.Offset+l.lease.Length {
		return nil, errors.New("outside the lease")
	}
	return l.b.data[offset:], l.b.broken
}

func (l *memoryLease) ReadAt(p []byte, offset int64) (int, error) {
	at, err := l.at(p, offset)
	if err != nil {
		return 0, err
	}
	return copy(p, at), nil
}

func (l *memoryLease) WriteAt(p []byte, offset int64) (int, error) {
	at, err := l.at(p, offset)
	if err != nil {
		return 0, err
	}
	l.wrote = true
	return copy(at, p), nil
}

func (l *memoryLease) Close() (uint64, error) {
	l.m.mu.Lock()
	defer l.m.mu.Unlock()
	for i, held := range l.b.Leases {
		if held == l.lease {
			l.b.Leases = append(l.b.Leases[:i:i], l.b.Leases[i+1:]...)
			break
		}
	}
	if l.wrote {
		l.b.Generation++
	}
	if len(l.b.Leases) == 0 {
		close(l.b.idle)
	}
	return l.b.Generation, nil
}

func newBuffers(t *testing.T) (*fixture, *memory) {
	m := &memory{buffers: map[string]*memoryBuffer{}}
	return newFixture(t, func(c *Config) { c.Buffers = m }), m
}
