package buffer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"mover/numa"
	"mover/reason"
)

// Create makes a buffer, zeroed and populated, as PUT does: one that is there
// with the same spec (Owner aside) is returned with created false, so a repeat
// does no harm. It takes as long as populating: 0.1 to 0.3 s a GiB; ctx ends
// that, and nothing is left then. A buffer that is unavailable is tried again.
//
// Errors: ErrBadSpec, ErrConflict, ErrForeign, ErrNoMount, ErrBadState,
// ErrClosed, ctx's; or a *reason.Error: NO_SPACE with a *SpaceError, QUOTA,
// PERMISSION_DENIED, IO_ERROR, BUFFER_BUSY while it is being deleted.
func (r *Registry) Create(ctx context.Context, spec Spec) (info Info, created bool, err error) {
	spec, err = spec.normal()
	if err != nil {
		return Info{}, false, err
	}
	for {
		r.mu.Lock()
		if r.closed {
			r.mu.Unlock()
			return Info{}, false, fmt.Errorf("create buffer %s: %w", spec.Name, ErrClosed)
		}
		b := r.buffers[spec.Name]
		if b == nil {
			b, err = r.begin(spec)
			r.mu.Unlock()
			if err != nil {
				return Info{}, false, err
			}
			info, err := r.finish(b, r.make(ctx, b, b.rec, nil))
			b.give()
			return info, err == nil, err
		}
		r.mu.Unlock()
		if err := b.take(ctx); err != nil {
			return Info{}, false, fmt.Errorf("create buffer %s: wait for another change of it: %w", spec.Name, err)
		}
		if b.state == gone {
			b.give()
			continue // deleted, or not made, while this waited
		}
		info, created, err := r.again(ctx, b, spec)
		b.give()
		return info, created, err
	}
}

// begin enters a new buffer, whose turn the caller then has; mu is held.
func (r *Registry) begin(spec Spec) (*buffer, error) {
	var all, owners int64
	for _, b := range r.buffers {
		all += b.rec.Bytes
		if b.rec.Owner == spec.Owner {
			owners += b.rec.Bytes
		}
	}
	switch l := r.limits; {
	case len(r.buffers) >= l.MaxBuffers:
		return nil, reason.New(reason.Quota, "node %s has its limit of %d buffers; delete one", r.node, l.MaxBuffers)
	case spec.Bytes > l.MaxBytes-all:
		return nil, reason.New(reason.Quota, "buffer %s: %d bytes, and all buffers of node %s may have %d, of which %d are used; delete one, or raise the limit",
			spec.Name, spec.Bytes, r.node, l.MaxBytes, all)
	case spec.Bytes > l.MaxBytesPerOwner-owners:
		return nil, reason.New(reason.Quota, "buffer %s: %d bytes, and the buffers of one owner may have %d, of which %d are used; delete one, or raise the limit",
			spec.Name, spec.Bytes, l.MaxBytesPerOwner, owners)
	}
	b := newBuffer()
	b.turn <- struct{}{}
	b.rec = newRecord(spec)
	r.buffers[spec.Name] = b
	return b, nil
}

// finish settles a new buffer whose making ended with err.
func (r *Registry) finish(b *buffer, err error) (Info, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		b.state = gone
		delete(r.buffers, b.rec.Name)
		return Info{}, err
	}
	i := b.info()
	r.log.Info("buffer created", "buffer", i.Name, "bytes", i.Bytes, "path", i.Path, "pages", i.PageReason, "node", i.NUMANode)
	return i, nil
}

// again is Create of a buffer that is there; the turn is held.
func (r *Registry) again(ctx context.Context, b *buffer, spec Spec) (Info, bool, error) {
	r.mu.Lock()
	deleting, was := b.deleting > 0, b.state
	r.mu.Unlock()
	if deleting {
		return Info{}, false, busyDeleting(spec.Name)
	}
	if !b.rec.spec().same(spec) {
		return Info{}, false, fmt.Errorf("create buffer %s: %w: %d bytes in %s pages on node %d, mode %v; delete it first, or ask for the same",
			spec.Name, ErrConflict, b.rec.Bytes, b.rec.PageSize, b.rec.NUMANode, b.rec.Mode)
	}
	created := false
	if was == unavailable {
		var err error
		if created, err = r.bring(ctx, b); err != nil {
			r.locked(func() { b.problem = err })
			return Info{}, false, err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return b.info(), created, nil
}

// make makes the file and its memory for a buffer that has none, at the best
// place that works. first says in the record's reason why it is made again.
func (r *Registry) make(ctx context.Context, b *buffer, rec record, first error) error {
	spec := rec.spec()
	gid, err := spec.gid()
	if err != nil {
		return err
	}
	places, err := r.places(spec)
	if err != nil {
		return fmt.Errorf("create buffer %s: %w", spec.Name, err)
	}
	rec.Generation, rec.Writing = nextGeneration(rec.Generation, r.now()), false
	if rec.CreatedAt.IsZero() {
		rec.CreatedAt = r.now().UTC()
	}
	why := ""
	for k, p := range places {
		rec := rec
		rec.Path, rec.HugeBytes, rec.Boot, rec.Inode = r.path(p.dir, spec.Name), p.hugeBytes, r.boot, inode{}
		rec.FileBytes = roundUp(spec.Bytes, max(p.hugeBytes, int64(os.Getpagesize())))
		rec.Reason = p.why + why
		if first != nil {
			rec.Reason += "; made again: " + first.Error()
		}
		if err = r.makeAt(ctx, b, rec, gid); err == nil {
			return nil
		}
		if k+1 < len(places) && ctx.Err() == nil && !errors.Is(err, ErrForeign) {
			why = fmt.Sprintf(", because of %s: %v", p.dir, err)
			continue
		}
		break
	}
	return makeError("create", spec.Name, err)
}

// makeError gives the error of a file or its memory its reason.
func makeError(what, name string, err error) error {
	var short *numa.ShortError
	switch {
	case errors.Is(err, ErrForeign), errors.Is(err, ErrBadState), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%s buffer %s: %w", what, name, err)
	case errors.As(err, &short):
		space := &SpaceError{Need: short.Need, Free: short.Free, Err: err}
		return reason.New(reason.NoSpace, "%s buffer %s: %w; make it smaller, or delete another", what, name, space)
	case errors.Is(err, unix.ENOSPC):
		space := &SpaceError{Free: -1, Err: err}
		return reason.New(reason.NoSpace, "%s buffer %s: %w; make it smaller, or delete another", what, name, space)
	case errors.Is(err, fs.ErrPermission):
		return reason.New(reason.PermissionDenied, "%s buffer %s: %w", what, name, err)
	}
	return reason.New(reason.IOError, "%s buffer %s: %w", what, name, err)
}

// makeAt makes the file of rec, and leaves nothing on failure. The record of
// the intent goes first: who finds it knows that the file, if any, is its own.
func (r *Registry) makeAt(ctx context.Context, b *buffer, rec record, gid int) error {
	rec.Whole, rec.Again = false, b.rec.Whole
	if err := r.store.save(rec, false); err != nil {
		return err
	}
	f, err := createFile(rec.Path)
	if err != nil {
		return errors.Join(err, r.forget(b, rec.Name))
	}
	rec.Inode = f.id
	err = r.store.save(rec, false)
	if err == nil {
		err = f.truncate(rec.FileBytes)
	}
	var memory *numa.FileMap
	if err == nil {
		memory, err = r.mapFile(ctx, f, rec)
	}
	if err == nil {
		if err = f.share(rec.Mode, gid); err == nil {
			rec.Whole, rec.Again = true, false
			err = r.store.save(rec, true)
		}
		if err != nil {
			err = errors.Join(err, memory.Unmap())
		}
	}
	if err != nil {
		_, removeErr := removeFile(rec.Path, rec.Inode)
		return errors.Join(err, removeErr, f.close(), r.forget(b, rec.Name))
	}
	r.locked(func() { b.rec, b.file, b.memory, b.state, b.problem = rec, f, memory, ready, nil })
	return nil
}

// forget takes back the record of an intent: there is no buffer, or the one
// that there is without memory keeps its record.
func (r *Registry) forget(b *buffer, name string) error {
	if b.rec.Whole {
		return r.store.save(b.rec, true)
	}
	return r.store.remove(name)
}

func (r *Registry) mapFile(ctx context.Context, f *file, rec record) (*numa.FileMap, error) {
	return numa.MapFile(ctx, numa.FileConfig{FD: f.fd, Bytes: rec.FileBytes, HaveBytes: f.have, PageBytes: rec.HugeBytes,
		NodeID: rec.NUMANode, SysRoot: r.sysRoot})
}
