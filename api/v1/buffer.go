package v1

import (
	"time"

	"mover/job"
)

// BufferSpec is the body of PUT /v1/buffers/{name}. A second PUT with the same
// content changes nothing; with another content it is refused.
type BufferSpec struct {
	Bytes    job.Bytes `json:"bytes"`               // 1 or more; rounded up to whole pages in Buffer.MappedBytes
	PageSize string    `json:"page_size,omitempty"` // "auto" (the default), "4KiB", "2MiB", "1GiB"
	NUMANode *int      `json:"numa_node,omitempty"` // nil and -1 are any
	Mode     string    `json:"mode,omitempty"`      // of the file, octal; "0600"
	Group    string    `json:"group,omitempty"`     // of the file, a name or a number; "" is the node's own
	Read     []string  `json:"read,omitempty"`      // nodes that jobs may carry it to; "*" is all
	Write    []string  `json:"write,omitempty"`     // nodes that jobs may fill it from; "*" is all
}

// BufferList is GET /v1/buffers.
type BufferList struct {
	Buffers []Buffer `json:"buffers"` // by name; never null
}

// Buffer is named memory of the node, as an application needs it to map it:
// open Path, mmap Bytes, shared.
type Buffer struct {
	Name        string        `json:"name"`
	Path        string        `json:"path"`
	Bytes       int64         `json:"bytes"`
	MappedBytes int64         `json:"mapped_bytes"`         // of the file: whole pages
	PageBytes   int64         `json:"page_bytes"`           // as obtained, not as asked for
	PageReason  string        `json:"page_reason"`          // why pages of this size
	NUMANode    int           `json:"numa_node"`            // where its pages are; -1 is on several, or not known
	Generation  uint64        `json:"generation"`           // changes with the content; also the data's ETag
	Mode        string        `json:"mode"`                 // of the file, octal
	Group       string        `json:"group"`                // of the file
	Owner       string        `json:"owner"`                // who made it, "config" if the configuration did
	Read        []string      `json:"read"`                 // never null
	Write       []string      `json:"write"`                // never null
	CreatedAt   time.Time     `json:"created_at"`           // also when its content was lost with a reboot
	Leases      []BufferLease `json:"leases"`               // in the order of their offsets; never null
	Error       string        `json:"error,omitempty"`      // why it cannot be used now
	Configured  bool          `json:"configured,omitempty"` // by the configuration: cannot be deleted here
}

// BufferLease is a range of a buffer in use.
type BufferLease struct {
	Holder    string    `json:"holder"` // "job ID", "api OWNER"
	Offset    int64     `json:"offset"`
	Length    int64     `json:"length"`
	Exclusive bool      `json:"exclusive"` // it is written
	Since     time.Time `json:"since"`
}

// BufferWritten is the answer to PUT /v1/buffers/{name}/data.
type BufferWritten struct {
	Offset     int64  `json:"offset"`
	Bytes      int64  `json:"bytes"`
	Generation uint64 `json:"generation"` // after the write
}
