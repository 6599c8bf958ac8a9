package buffer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
)

// errRestarted is why memory is gone that had a name before.
var errRestarted = errors.New("the host was restarted, and its memory was lost")

// restore brings back what the records tell of.
func (r *Registry) restore(ctx context.Context) ([]Problem, error) {
	records, problems, err := r.store.load()
	if err != nil {
		return nil, err
	}
	for _, rec := range records {
		if !rec.Whole {
			if err := r.sweep(rec); err != nil {
				problems = append(problems, Problem{Buffer: rec.Name, Kind: Unreadable, Err: err})
				continue
			}
			if !rec.Again {
				continue
			}
			rec.Whole, rec.Again, rec.Boot = true, false, bootLost
		}
		b := newBuffer()
		b.rec = rec
		b.turn <- struct{}{}
		r.locked(func() { r.buffers[rec.Name] = b })
		made, err := r.bring(ctx, b)
		switch {
		case err != nil && ctx.Err() != nil:
			b.give()
			return nil, fmt.Errorf("restore buffers: %w", err)
		case err != nil:
			r.locked(func() { b.state, b.problem = unavailable, err })
			problems = append(problems, Problem{Buffer: rec.Name, Kind: Unavailable, Err: err})
			r.log.Error("buffer unavailable", "buffer", rec.Name, "error", err)
		case made:
			problems = append(problems, Problem{Buffer: rec.Name, Kind: Recreated, Err: errors.New(b.rec.Reason)})
			r.log.Warn("buffer made again, zeroed", "buffer", rec.Name, "why", b.rec.Reason)
		}
		b.give()
	}
	return problems, nil
}

// bootLost is the Boot of a record whose memory is known to be gone. It is no
// boot_id, which is a UUID.
const bootLost = "lost"

// sweep removes what an unfinished Create or Delete left. Nobody was promised
// anything, except of a buffer that was being made again.
func (r *Registry) sweep(rec record) error {
	// After a restart nothing of it is left, and its inode number is somebody else's.
	if rec.Boot == r.boot {
		if _, err := removeFile(rec.Path, rec.Inode); err != nil {
			return fmt.Errorf("an unfinished buffer %s: %w; remove the file", rec.Name, err)
		}
	}
	if rec.Again {
		return nil
	}
	return r.store.remove(rec.Name)
}

// bring maps the file of b's record again, or makes another when the memory is
// gone; made tells. The turn is held.
func (r *Registry) bring(ctx context.Context, b *buffer) (made bool, err error) {
	rec := b.rec
	if rec.Boot != r.boot {
		return true, r.make(ctx, b, rec, errRestarted)
	}
	f, err := openFile(rec.Path, rec.Inode)
	if errors.Is(err, fs.ErrNotExist) {
		return true, r.make(ctx, b, rec, fmt.Errorf("%s was removed", rec.Path))
	}
	if err != nil {
		return false, fmt.Errorf("buffer %s: %w", rec.Name, err)
	}
	if f.bytes != rec.FileBytes {
		// What is left of it is of no use to anybody: it is not what they wrote.
		lost := fmt.Errorf("%s had %d of %d bytes", rec.Path, f.bytes, rec.FileBytes)
		_, removeErr := removeFile(rec.Path, rec.Inode)
		if err := errors.Join(removeErr, f.close()); err != nil {
			return false, fmt.Errorf("buffer %s: %w: %w", rec.Name, lost, err)
		}
		return true, r.make(ctx, b, rec, lost)
	}
	if err := r.adopt(ctx, b, f, rec); err != nil {
		return false, errors.Join(err, f.close())
	}
	return false, nil
}

// adopt maps an earlier process's file.
func (r *Registry) adopt(ctx context.Context, b *buffer, f *file, rec record) error {
	memory, err := r.mapFile(ctx, f, rec)
	if err != nil {
		return makeError("restore", rec.Name, err)
	}
	gid, err := rec.spec().gid()
	if err == nil {
		err = f.share(rec.Mode, gid)
	}
	if err == nil && rec.Writing {
		rec.Generation, rec.Writing = nextGeneration(rec.Generation, r.now()), false
		err = r.store.save(rec, false)
	}
	if err != nil {
		return errors.Join(makeError("restore", rec.Name, err), memory.Unmap())
	}
	r.locked(func() { b.rec, b.file, b.memory, b.state, b.problem = rec, f, memory, ready, nil })
	return nil
}
