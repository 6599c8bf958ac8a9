package buffer

import (
	"errors"
	"fmt"
	"time"
)

// What calls fail with. Errors that end a job's attempt are *reason.Error too,
// and wrap one of these; see each method.
var (
	// ErrBadSpec: Create was asked for what cannot be. The text names the field.
	ErrBadSpec = errors.New("bad buffer")
	// ErrConflict: a buffer of this name exists, with another spec.
	ErrConflict = errors.New("the buffer exists with other settings")
	// ErrForeign: at the buffer's path is something this node did not make.
	ErrForeign = errors.New("the file is not this node's")
	// ErrNotFound: there is no buffer of this name.
	ErrNotFound = errors.New("no such buffer")
	// ErrNoMount: no hugetlbfs mount with the page size. The text has the
	// command that makes one.
	ErrNoMount = errors.New("no hugetlbfs mount")
	// ErrUnaligned: the range has no pages of its own.
	ErrUnaligned = errors.New("the range is not whole pages")
	// ErrShared: a write through a lease that is not exclusive.
	ErrShared = errors.New("the lease is shared, to read only")
	// ErrReleased: use of a lease after Release.
	ErrReleased = errors.New("the lease is released")
	// ErrTruncated: another program made the buffer's file shorter.
	ErrTruncated = errors.New("another program truncated the buffer's file")
	// ErrUnavailable: the buffer is defined and has no memory; Info.Problem.
	ErrUnavailable = errors.New("the buffer has no memory")
	// ErrLeased: Close found leases that are not released.
	ErrLeased = errors.New("the buffer is leased")
	// ErrClosed: use of a registry after Close.
	ErrClosed = errors.New("the buffers are closed")
	// ErrTooLong: more data than the range has bytes.
	ErrTooLong = errors.New("more data than the range takes")
	// ErrBadState: the directory for the records cannot be used.
	ErrBadState = errors.New("state directory")
)

// BusyError says who has the range that was asked for. It comes in a
// *reason.Error with the code BUFFER_BUSY, which is retryable.
type BusyError struct {
	Buffer string
	By     LeaseInfo // the first lease in the way
}

// Error names holder, range and since when.
func (e *BusyError) Error() string {
	kind := "read"
	if e.By.Exclusive {
		kind = "write"
	}
	return fmt.Sprintf("buffer %s: bytes %d to %d are leased to %s by %s since %s", e.Buffer, e.By.Offset,
		e.By.Offset+e.By.Length, kind, e.By.Holder, e.By.Since.UTC().Format(time.RFC3339))
}

// RangeError says that a range is not inside the buffer. It comes in a
// *reason.Error: NO_SPACE for an exclusive lease, SOURCE_NOT_FOUND else.
type RangeError struct {
	Buffer         string
	Offset, Length int64 // asked for
	Bytes          int64 // the buffer has
}

// Error names the range and what there is.
func (e *RangeError) Error() string {
	return fmt.Sprintf("buffer %s: a range of %d bytes at offset %d is not inside its %d bytes", e.Buffer, e.Length,
		e.Offset, e.Bytes)
}

// SpaceError says that memory for a buffer is short. It comes in a
// *reason.Error with the code NO_SPACE.
type SpaceError struct {
	Need int64 // bytes; 0 when the whole file system is full
	Free int64 // bytes that were to be had; -1 when nothing tells
	Err  error // what was tried
}

// Error names what was tried, need, what is free, and the fix where there is one.
func (e *SpaceError) Error() string { return e.Err.Error() }

// Unwrap returns what was tried.
func (e *SpaceError) Unwrap() error { return e.Err }
