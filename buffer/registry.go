package buffer

import (
	"context"
	"errors"
	"io"
	"log/slog"
)

// Config is what a Registry needs.
type Config struct {
	// Dir is the node's state directory; records are kept in Dir/buffers, which
	// is made. The caller holds the directory's lock: one process at a time.
	Dir string
	// Node is the node's name: part of the files' names.
	Node   string
	Logger *slog.Logger
	Limits Limits
}

// Limits bound a registry. 0 is the default.
type Limits struct {
	MaxBuffers int   // default 1024, each one descriptor and one mapping
	MaxBytes   int64 // of all buffers together; default: no limit but memory
	// MaxBytesPerOwner is the quota of each Spec.Owner; default: no limit.
	MaxBytesPerOwner int64
	MaxLeases        int // of one buffer at a time; default 1024
}

// Registry is the node's buffers.
type Registry struct{}

// LeaseRequest asks for a range of a buffer.
type LeaseRequest struct {
	Name           string
	Offset, Length int64 // bytes; Length 0 is an empty lease, in nobody's way
	// Exclusive is to write, and the buffer is then the destination in
	// reasons; otherwise the lease is shared, to read, and it is the source.
	Exclusive bool
	Holder    string // who, for others' errors: "job ID", "PUT data by OWNER"
}

// Lease is a range of a buffer's memory.
type Lease struct{}

var errNotYet = errors.ErrUnsupported

func Open(ctx context.Context, cfg Config) (*Registry, []Problem, error) { return nil, nil, errNotYet }
func (r *Registry) Create(ctx context.Context, spec Spec) (info Info, created bool, err error) {
	return Info{}, false, errNotYet
}
func (r *Registry) SetAccess(name string, read, write []string) error { return errNotYet }
func (r *Registry) Get(name string) (Info, error)                     { return Info{}, errNotYet }
func (r *Registry) List() []Info                                      { return nil } // by name
func (r *Registry) Delete(ctx context.Context, name string) error     { return errNotYet }
func (r *Registry) Readable(name, node string) (Info, error)          { return Info{}, errNotYet }
func (r *Registry) Writable(name, node string) (Info, error)          { return Info{}, errNotYet }
func (r *Registry) Lease(q LeaseRequest) (*Lease, error)              { return nil, errNotYet }
func (r *Registry) Close() error                                      { return errNotYet }

func (l *Lease) Info() LeaseInfo                             { return LeaseInfo{} }
func (l *Lease) Memory() []byte                              { return nil }
func (l *Lease) Pages() ([]byte, error)                      { return nil, errNotYet }
func (l *Lease) Dirty() error                                { return errNotYet }
func (l *Lease) Release()                                    {}
func (l *Lease) ReadAt(p []byte, offset int64) (int, error)  { return 0, errNotYet }
func (l *Lease) WriteAt(p []byte, offset int64) (int, error) { return 0, errNotYet }
func (l *Lease) Verify(crc uint32) error                     { return errNotYet }
func (l *Lease) WriteTo(w io.Writer) (int64, error)          { return 0, errNotYet }
func (l *Lease) ReadFrom(from io.Reader) (int64, error)      { return 0, errNotYet }
func (l *Lease) Checksum() (uint32, error)                   { return 0, errNotYet }
func Guard(memory []byte, f func() error) error              { return errNotYet }
