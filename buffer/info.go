package buffer

import (
	"io/fs"
	"time"
)

// Info describes a buffer at one moment. It is the caller's own.
type Info struct {
	Name string
	// Path is the file to map, MappedBytes its length: Bytes, rounded up to
	// whole pages. What is behind Bytes is nobody's.
	Path        string
	Bytes       int64
	MappedBytes int64
	// PageBytes is the size of the pages obtained, as the kernel tells;
	// PageReason says why these, and what could not be verified or placed.
	PageSize   PageSize // as asked
	PageBytes  int64
	PageReason string
	// NUMAWanted is as asked. NUMANode is the node that all pages are on, -1
	// when they are on several or the kernel does not tell.
	NUMAWanted, NUMANode int
	// Generation is another, and a larger one, whenever the content may be
	// another: after a transfer or a PUT into the buffer, and when it was made
	// again; also over Delete and Create. Below 2^53, so that JSON carries it.
	// Programs that write the mapped file do not change it.
	Generation  uint64
	Mode        fs.FileMode
	Group       string // as asked
	Owner       string
	Read, Write []string // sorted
	CreatedAt   time.Time
	Leases      []LeaseInfo // by Offset, then Since
	// Problem says why the buffer can't be leased, and what to do; "" when it can.
	Problem string
}

// LeaseInfo describes a lease.
type LeaseInfo struct {
	Holder         string
	Offset, Length int64 // bytes
	Exclusive      bool
	Since          time.Time
}

// ProblemKind says what a Problem is about.
type ProblemKind string

// Kinds of Problem.
const (
	// Recreated: the memory was gone, and the buffer is there again, zeroed.
	Recreated ProblemKind = "recreated"
	// Unavailable: the buffer could not be brought back, and is listed with
	// Info.Problem. Create with the same spec tries again, Delete gives it up.
	Unavailable ProblemKind = "unavailable"
	// Unreadable: a record in the state directory could not be read; it is left
	// there, and its buffer is not listed.
	Unreadable ProblemKind = "unreadable"
)

// Problem is what went wrong with one buffer in Open. Others are not affected.
type Problem struct {
	Buffer string // its name; the file's name for Unreadable
	Kind   ProblemKind
	Err    error // what happened, and what to do
}
