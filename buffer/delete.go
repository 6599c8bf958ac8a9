package buffer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"mover/reason"
)

var errDeleting = errors.New("the buffer is being deleted")

func busyDeleting(name string) error {
	return reason.New(reason.BufferBusy, "buffer %s: %w; try again", name, errDeleting)
}

// Delete waits until no lease is out, and removes the buffer and its file, if
// that is still the one this node made. New leases are refused meanwhile with
// BUFFER_BUSY. When ctx ends first the buffer stays as it was, and the error is
// a *reason.Error BUFFER_BUSY that names a holder and wraps ctx's error.
// ErrNotFound, ErrClosed; nil also when another Delete was faster.
//
// Programs that have the file mapped keep the memory until they unmap it.
func (r *Registry) Delete(ctx context.Context, name string) error {
	r.mu.Lock()
	b, err := r.find(name)
	if err == nil && r.closed {
		err = fmt.Errorf("delete buffer %s: %w", name, ErrClosed)
	}
	if err != nil {
		r.mu.Unlock()
		return err
	}
	b.deleting++
	r.mu.Unlock()
	defer r.locked(func() { b.deleting-- })
	if err := r.drain(ctx, b, name); err != nil {
		return err
	}
	if err := b.take(ctx); err != nil {
		return fmt.Errorf("delete buffer %s: wait for another change of it: %w", name, err)
	}
	defer b.give()
	if b.state == gone {
		return nil
	}
	return r.remove(b)
}

// drain waits until b has no lease. There can be no new one: b.deleting is set.
func (r *Registry) drain(ctx context.Context, b *buffer, name string) error {
	r.mu.Lock()
	for len(b.leases.held) > 0 {
		if b.idle == nil {
			b.idle = make(chan struct{})
		}
		idle := b.idle
		r.mu.Unlock()
		select {
		case <-idle:
		case <-ctx.Done():
			r.mu.Lock()
			held := b.leases.list()
			r.mu.Unlock()
			if len(held) > 0 {
				return reason.New(reason.BufferBusy, "delete: %w: %w", &BusyError{Buffer: name, By: held[0]}, ctx.Err())
			}
		}
		r.mu.Lock()
	}
	r.mu.Unlock()
	return nil
}

// remove removes b for its turn's holder; no lease is out.
func (r *Registry) remove(b *buffer) error {
	rec := b.rec
	// First the intent: who finds the record of a file that is half removed
	// must not make the buffer again.
	rec.Whole = false
	if err := r.store.save(rec, false); err != nil {
		return fmt.Errorf("delete buffer %s: %w", rec.Name, err)
	}
	removed := false
	var err error
	if rec.Boot == r.boot {
		removed, err = removeFile(rec.Path, rec.Inode)
	}
	if err != nil {
		code := reason.IOError
		if errors.Is(err, fs.ErrPermission) {
			code = reason.PermissionDenied
		}
		return errors.Join(reason.New(code, "delete buffer %s: %w", rec.Name, err), r.store.save(b.rec, false))
	}
	if !removed {
		r.log.Warn("a buffer's file was not there, or not its own, and was left alone", "buffer", rec.Name, "path", rec.Path)
	}
	was := b.state
	r.locked(func() {
		b.state = gone
		delete(r.buffers, rec.Name)
	})
	err = r.store.remove(rec.Name)
	if was == ready {
		err = errors.Join(err, b.release())
	}
	r.log.Info("buffer deleted", "buffer", rec.Name)
	return err
}
