package buffer

import (
	"context"
	"fmt"
	"os"
	"sync"

	"mover/reason"
)

// LeaseRequest asks for a range of a buffer.
type LeaseRequest struct {
	Name           string
	Offset, Length int64 // bytes; Length 0 is an empty range, in nobody's way
	// Exclusive is to write, and the buffer is then the destination in
	// reasons; otherwise the lease is shared, to read, and it is the source.
	Exclusive bool
	Holder    string // who, for others' errors: "job ID", "PUT data by OWNER"
}

// Lease is a range of a buffer's memory, the holder's until Release. It is what
// the engine takes as a Source (ReadAt, Verify) and as a Sink (WriteAt). Any
// goroutine may call its methods.
type Lease struct {
	r      *Registry
	b      *buffer
	name   string
	bytes  int64 // of the buffer
	info   LeaseInfo
	mem    []byte // exactly the range
	mapped []byte // the whole buffer

	use      sync.RWMutex // held to read by whoever touches mem, to write by Release
	released bool

	dirtying sync.Mutex
	dirty    bool
}

// Lease gives out a range, or fails at once: there is no queue, because the
// reason is retryable and jobs back off. The error is a *reason.Error:
//   - SOURCE_NOT_FOUND, or DEST_NOT_FOUND for an exclusive lease, wraps ErrNotFound: no such buffer;
//   - SOURCE_NOT_FOUND, or NO_SPACE for an exclusive lease, wraps a *RangeError: the range is not inside;
//   - BUFFER_BUSY wraps a *BusyError: who has what; or the buffer is being
//     deleted, or has Limits.MaxLeases leases;
//   - IO_ERROR wraps ErrTruncated or ErrUnavailable: see Info.Problem;
//   - INTERNAL wraps ErrClosed.
func (r *Registry) Lease(q LeaseRequest) (*Lease, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	missing, outside := reason.SourceNotFound, reason.SourceNotFound
	if q.Exclusive {
		missing, outside = reason.DestNotFound, reason.NoSpace
	}
	if r.closed {
		return nil, reason.New(reason.Internal, "lease buffer %s: %w", q.Name, ErrClosed)
	}
	b, err := r.find(q.Name)
	if err != nil {
		return nil, reason.New(missing, "%w", err)
	}
	// offset+length may not wrap: compare by subtraction.
	if q.Offset < 0 || q.Length < 0 || q.Offset > b.rec.Bytes || q.Length > b.rec.Bytes-q.Offset {
		return nil, reason.New(outside, "%w; ask for less, or create a larger buffer",
			&RangeError{Buffer: q.Name, Offset: q.Offset, Length: q.Length, Bytes: b.rec.Bytes})
	}
	if b.deleting > 0 {
		return nil, busyDeleting(q.Name)
	}
	if b.state != ready {
		return nil, reason.New(reason.IOError, "buffer %s: %w: %w", q.Name, ErrUnavailable, b.problem)
	}
	if err := b.file.whole(); err != nil {
		return nil, reason.New(reason.IOError, "buffer %s: %w", q.Name, err)
	}
	if by := b.leases.conflict(q.Offset, q.Length, q.Exclusive); by != nil {
		return nil, reason.New(reason.BufferBusy, "%w; try again when it is released", &BusyError{Buffer: q.Name, By: by.info})
	}
	if len(b.leases.held) >= r.limits.MaxLeases {
		return nil, reason.New(reason.BufferBusy, "buffer %s has its limit of %d leases; try again when one is released", q.Name, r.limits.MaxLeases)
	}
	whole := b.memory.Bytes()
	l := &Lease{r: r, b: b, name: q.Name, bytes: b.rec.Bytes, mapped: whole, mem: whole[q.Offset : q.Offset+q.Length : q.Offset+q.Length],
		info: LeaseInfo{Holder: q.Holder, Offset: q.Offset, Length: q.Length, Exclusive: q.Exclusive, Since: r.now()}}
	b.leases.add(l)
	return l, nil
}

// Info describes the lease.
func (l *Lease) Info() LeaseInfo { return l.info }

// Memory returns exactly the range, nil after Release. It must not be used
// after Release, by a device neither: the buffer may be unmapped then. Call
// Dirty before anything writes to it, and Guard around what the CPU does to it.
func (l *Lease) Memory() []byte {
	l.use.RLock()
	defer l.use.RUnlock()
	if l.released {
		return nil
	}
	return l.mem
}

// Pages returns the base pages (os.Getpagesize) that hold the range, for
// registration; the range begins where they do. ErrUnaligned when the range
// does not begin with a page; and when an exclusive one does not end with a
// page, or where the buffer ends: who may write to the pages may then write
// beside the range, to what may be another's. Such ranges are copied. As for
// Memory otherwise; ErrReleased.
func (l *Lease) Pages() ([]byte, error) {
	l.use.RLock()
	defer l.use.RUnlock()
	if l.released {
		return nil, fmt.Errorf("pages of buffer %s: %w", l.name, ErrReleased)
	}
	page := int64(os.Getpagesize())
	end := l.info.Offset + l.info.Length
	upTo := roundUp(end, page)
	switch {
	case l.info.Offset%page != 0:
		return nil, fmt.Errorf("%w: it begins at %d, and pages have %d bytes", ErrUnaligned, l.info.Offset, page)
	case l.info.Exclusive && upTo != end && end != l.bytes:
		return nil, fmt.Errorf("%w: it ends at %d, inside a page of %d bytes that has others' bytes", ErrUnaligned, end, page)
	}
	return l.mapped[l.info.Offset:upTo:upTo], nil
}

// Dirty says that the content is about to change: Release then makes the
// buffer's next generation, and so does the next process if this one is
// killed. The first call writes a small record. WriteAt and ReadFrom call it;
// call it before Memory or Pages are written to otherwise. ErrShared;
// IO_ERROR when the record can't be written: nothing may be written then.
func (l *Lease) Dirty() error {
	if !l.info.Exclusive {
		return fmt.Errorf("write to buffer %s: %w", l.name, ErrShared)
	}
	l.dirtying.Lock()
	defer l.dirtying.Unlock()
	if l.dirty {
		return nil
	}
	l.use.RLock()
	defer l.use.RUnlock()
	if l.released {
		return fmt.Errorf("write to buffer %s: %w", l.name, ErrReleased)
	}
	_ = l.b.take(context.Background()) // held for short while a lease is out; without an end, it does not fail
	defer l.b.give()
	rec := l.b.rec
	if !rec.Writing {
		rec.Writing = true
		if err := l.r.store.save(rec, false); err != nil {
			return reason.New(reason.IOError, "write to buffer %s: %w", rec.Name, err)
		}
	}
	l.r.locked(func() {
		l.b.rec = rec
		l.b.writers++
	})
	l.dirty = true
	return nil
}

// Release gives the range back, once: later calls do nothing. It waits for
// reads and writes of other goroutines through the lease; registrations of its
// memory are gone by then, and devices are done with it.
func (l *Lease) Release() {
	l.use.Lock()
	defer l.use.Unlock()
	if l.released {
		return
	}
	l.released = true
	if l.dirty {
		l.settle()
	}
	l.r.mu.Lock()
	defer l.r.mu.Unlock()
	l.b.leases.remove(l)
	if len(l.b.leases.held) == 0 && l.b.idle != nil {
		close(l.b.idle)
		l.b.idle = nil
	}
}

// settle makes the next generation, before anybody else can have the range.
func (l *Lease) settle() {
	_ = l.b.take(context.Background()) // as in Dirty
	defer l.b.give()
	rec := l.b.rec
	rec.Generation = nextGeneration(rec.Generation, l.r.now())
	rec.Writing = l.b.writers > 1
	l.r.locked(func() {
		l.b.rec = rec
		l.b.writers--
	})
	if err := l.r.store.save(rec, false); err != nil {
		// The record on disk says that it is being written: the next process
		// goes on to a generation of its own.
		l.r.log.Warn("the generation of a buffer could not be recorded", "buffer", rec.Name, "error", err)
	}
}
