package buffer

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"runtime/debug"

	"mover/reason"
)

// castagnoli is the polynomial of CRC32C, as for every checksum of an item.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// streamBytes is how much WriteTo and ReadFrom copy at a time: what passes
// between a buffer and somebody else's code goes through memory that can't fault.
const streamBytes = 256 << 10

// sumBytes is how much is summed between two looks at the file.
const sumBytes = 64 << 20

// ReadAt copies from the range, with the contract of io.ReaderAt and of the
// engine's Source: offset counts from the range's begin, fewer bytes than
// len(p) come with an error, io.EOF at the end. A *reason.Error IO_ERROR wraps
// ErrTruncated; otherwise ErrReleased, or INTERNAL for a negative offset.
func (l *Lease) ReadAt(p []byte, offset int64) (n int, err error) {
	if offset < 0 {
		return 0, reason.New(reason.Internal, "read of buffer %s at offset %d", l.name, offset)
	}
	err = l.touch("read", func() {
		if offset < int64(len(l.mem)) {
			n = copy(p, l.mem[offset:])
		}
	})
	switch {
	case err != nil:
		return 0, err
	case n < len(p):
		return n, io.EOF
	}
	return n, nil
}

// WriteAt copies into the range, with the contract of io.WriterAt and of the
// engine's Sink: all of p is written, or there is an error. A *reason.Error
// IO_ERROR wraps ErrTruncated, and one with NO_SPACE a *RangeError: nothing was
// written then. As Dirty otherwise.
func (l *Lease) WriteAt(p []byte, offset int64) (n int, err error) {
	if offset < 0 || offset > l.info.Length || int64(len(p)) > l.info.Length-offset {
		return 0, reason.New(reason.NoSpace, "write outside of what is leased: %w",
			&RangeError{Buffer: l.name, Offset: offset, Length: int64(len(p)), Bytes: l.info.Length})
	}
	if err := l.Dirty(); err != nil {
		return 0, err
	}
	if err := l.touch("write", func() { n = copy(l.mem[offset:], p) }); err != nil {
		return 0, err
	}
	return n, nil
}

// Checksum is the CRC32C of the range. Errors as of ReadAt.
func (l *Lease) Checksum() (crc uint32, err error) {
	for at := 0; at < len(l.mem) && err == nil; at += sumBytes {
		err = l.touch("sum", func() {
			crc = crc32.Update(crc, castagnoli, l.mem[at:min(at+sumBytes, len(l.mem))])
		})
	}
	return crc, err
}

// Verify tells, after the last read, whether the range still has the CRC32C of
// what was read: a *reason.Error SOURCE_CHANGED otherwise, because a program
// that has the buffer mapped wrote to it. It reads all of the range again. With
// crc 0, for an item without a checksum, it looks at the file's length alone.
func (l *Lease) Verify(crc uint32) error {
	if crc == 0 {
		return l.touch("verify", func() {})
	}
	now, err := l.Checksum()
	if err != nil {
		return err
	}
	if now != crc {
		return reason.New(reason.SourceChanged, "buffer %s was written to by a program on this host while it was read; submit again when nobody writes it", l.name)
	}
	return nil
}

// WriteTo writes the range to w, from its begin. It implements io.WriterTo. For
// a part of it, or http.ServeContent: io.NewSectionReader(lease, from, n).
func (l *Lease) WriteTo(w io.Writer) (written int64, err error) {
	p := make([]byte, min(streamBytes, l.info.Length))
	for written < l.info.Length {
		n, err := l.ReadAt(p[:min(int64(len(p)), l.info.Length-written)], written)
		if err != nil {
			return written, err
		}
		n, err = w.Write(p[:n])
		written += int64(n)
		if err != nil {
			return written, err
		}
	}
	return written, nil
}

// ReadFrom writes what from has to the range, from its begin, until io.EOF. It
// implements io.ReaderFrom. The range is the limit: ErrTooLong when from has
// more, of which the first bytes are written.
func (l *Lease) ReadFrom(from io.Reader) (written int64, err error) {
	p := make([]byte, streamBytes)
	for {
		n, readErr := fill(from, p)
		if room := l.info.Length - written; int64(n) > room {
			n, readErr = int(room), fmt.Errorf("write to buffer %s: %w, %d bytes", l.name, ErrTooLong, l.info.Length)
		}
		if n > 0 {
			if _, err := l.WriteAt(p[:n], written); err != nil {
				return written, err
			}
			written += int64(n)
		}
		if readErr == io.EOF {
			return written, nil
		}
		if readErr != nil {
			return written, readErr
		}
	}
}

// fill reads until p is full. Unlike io.ReadFull it keeps apart the end, io.EOF,
// and a body that was cut off, which is an io.ErrUnexpectedEOF of the reader.
func fill(from io.Reader, p []byte) (n int, err error) {
	for idle := 0; n < len(p) && err == nil; {
		var k int
		k, err = from.Read(p[n:])
		n += k
		if idle++; k > 0 {
			idle = 0
		}
		if idle == 100 {
			return n, io.ErrNoProgress
		}
	}
	return n, err
}

// touch does f, which touches the range with the CPU, unless it is released or
// its file lost its length.
func (l *Lease) touch(what string, f func()) error {
	l.use.RLock()
	defer l.use.RUnlock()
	if l.released {
		return fmt.Errorf("%s buffer %s: %w", what, l.name, ErrReleased)
	}
	// The file is made shorter before the look, or after it: the one is seen,
	// the other faults.
	err := l.b.file.whole()
	if errors.Is(err, ErrUnavailable) {
		err = nil // without a name the memory is there all the same
	}
	if err == nil {
		err = Guard(l.mapped, func() error { f(); return nil })
	}
	if err != nil {
		return reason.New(reason.IOError, "%s buffer %s: %w", what, l.name, err)
	}
	return nil
}

// Guard calls f and returns its error, or ErrTruncated if f touched a page of
// memory that is gone (SIGBUS, mmap(2)): what f did is then done in part.
// Faults elsewhere, and f's other panics, go on. It costs nothing to speak of.
// f must not be in the middle of what a panic would leave broken, such as with
// a lock held that it does not release by defer.
func Guard(memory []byte, f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		fault := recover()
		if fault == nil {
			return
		}
		at, ok := fault.(interface{ Addr() uintptr }) // of the runtime's error, see debug.SetPanicOnFault
		if !ok || !inside(memory, at.Addr()) {
			panic(fault)
		}
		err = fmt.Errorf("%w; delete the buffer and create it again", ErrTruncated)
	}()
	return f()
}
