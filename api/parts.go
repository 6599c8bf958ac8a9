package api

import (
	"context"
	"errors"

	v1 "mover/api/v1"
	"mover/job"
)

// The parts of a node that have endpoints of their own. Every method may be
// called from any goroutine and honours ctx, which ends with the client's
// request. What a client did wrong or has to wait for is told by a
// *job.FieldError, a *reason.Error or one of the errors below; anything else
// becomes a 500 and goes to the log.

// Errors that implementations of Buffers return.
var (
	ErrNoBuffer       = errors.New("no such buffer; GET /v1/buffers lists them")
	ErrBufferConflict = errors.New("a buffer of this name exists with another definition; delete it first, or choose another name")
	ErrBufferConfig   = errors.New("the buffer belongs to the node's configuration; remove it there")
)

// Planner answers what a job would do.
type Planner interface {
	// Plan looks at source and destination, wherever they are. spec is
	// normalized and the caller may move it; owner is the owner that the job
	// would have. It returns within the ctx's deadline (PlanTimeout) with what
	// was counted so far, Complete false. What speaks against the job as a
	// whole goes into Plan.Reason; an error is for what could not be found
	// out, such as an unreachable peer.
	Plan(ctx context.Context, spec job.Spec, owner string) (v1.Plan, error)
}

// Buffers is the node's named memory.
type Buffers interface {
	// List returns all, by name.
	List(ctx context.Context) ([]v1.Buffer, error)
	// Get returns one; ErrNoBuffer.
	Get(ctx context.Context, name string) (v1.Buffer, error)
	// Create makes a buffer for owner, or returns the one that exists with the
	// same definition, created false. name is a valid name, spec has its
	// defaults written out. Errors: ErrBufferConflict; a *reason.Error
	// (NO_SPACE, QUOTA).
	Create(ctx context.Context, name string, spec v1.BufferSpec, owner string) (b v1.Buffer, created bool, err error)
	// Delete waits for the buffer's leases until ctx ends (BUFFER_BUSY), and
	// gives no new ones meanwhile. Errors: ErrNoBuffer, ErrBufferConfig.
	Delete(ctx context.Context, name string) error
	// Open leases a range, exclusively to write it. length -1 is the rest of
	// the buffer. holder is shown to others. Errors: ErrNoBuffer; a
	// *reason.Error with BUFFER_BUSY that says who holds what; a
	// *job.FieldError for a range that the buffer does not have.
	Open(ctx context.Context, name string, r BufferRange, holder string) (BufferData, error)
}

// BufferRange is what Buffers.Open leases.
type BufferRange struct {
	Offset, Length int64
	Write          bool
}

// BufferData is a leased range. One goroutine uses it.
type BufferData interface {
	// Generation is the buffer's, as the lease was given: what a shared lease
	// reads has it.
	Generation() uint64
	// ReadAt and WriteAt are those of io.ReaderAt and io.WriterAt, with
	// offsets of the buffer, within the range.
	ReadAt(p []byte, offset int64) (int, error)
	WriteAt(p []byte, offset int64) (int, error)
	// Close gives the lease back, and returns the generation that the buffer
	// then has: another than before if WriteAt was called.
	Close() (generation uint64, err error)
}

// Drainer stops the node from taking jobs, and undoes that.
type Drainer interface {
	// Drain returns at once; what runs goes on. Repeating it changes nothing.
	Drain(ctx context.Context, undo bool) (v1.Drain, error)
}

// Remote asks another node about a job that was forwarded to it.
type Remote interface {
	// Call carries req to node, where ServeRemote answers it. An error is a
	// *reason.Error (PEER_UNREACHABLE, PEER_REFUSED) when no answer came; that
	// the node refused is a response like any other.
	Call(ctx context.Context, node string, req RemoteRequest) (RemoteResponse, error)
}

// RemoteRequest is a request of this API that one node makes of another, for a
// user of its own. As JSON it is the body of a question between nodes, at most
// MaxRemoteBytes.
type RemoteRequest struct {
	Method string            `json:"method"`
	Path   string            `json:"path"`            // "/v1/jobs/ID", "/v1/jobs/ID/pause", ...
	Query  string            `json:"query,omitempty"` // encoded, without "?"
	Header map[string]string `json:"header,omitempty"`
	Body   []byte            `json:"body,omitempty"`
	Owner  string            `json:"owner"` // for whom: the job's owner
	Scope  string            `json:"scope"` // what it may do at the node that asks; the answering node gives at most submit
}

// RemoteResponse is the answer, at most MaxRemoteBytes as JSON.
type RemoteResponse struct {
	Status int               `json:"status"`
	Header map[string]string `json:"header,omitempty"`
	Body   []byte            `json:"body,omitempty"`
}

// MaxRemoteBytes bounds a RemoteRequest and a RemoteResponse as JSON, with
// room to spare in a message between nodes (1 MiB).
const MaxRemoteBytes = 1<<20 - 4096

// SocketUser is what a user of the host may do over the Unix socket.
type SocketUser struct {
	Scope Scope
	Roots Roots
}
