// Package v1 is the JSON of the HTTP API beside the job itself (which is
// job.Spec and job.Snapshot): what the server writes and the Go client reads.
// Fields are only ever added. It has no behaviour and imports nothing of the
// server, so that a client stays small.
package v1

import (
	"time"

	"mover/job"
	"mover/reason"
)

// Problem is an error's body, application/problem+json (RFC 9457).
type Problem struct {
	Type   string `json:"type"`   // always "about:blank": Code tells more
	Title  string `json:"title"`  // of the HTTP status
	Status int    `json:"status"` // HTTP status
	Code   string `json:"code"`   // one of the Code constants; stable
	Detail string `json:"detail"` // for a person: what is wrong and what to do
	Field  string `json:"field,omitempty"`
	// Reason is a job's reason code when one stands behind the refusal, such
	// as NO_SPACE.
	Reason    reason.Code `json:"reason,omitempty"`
	RequestID string      `json:"request_id"` // also in the node's log
}

// The codes of problems. They are about requests; why a job failed is its
// last_reason.
const (
	CodeInvalidJob       = "invalid_job"            // 400; Field says where
	CodeUnsupported      = "unsupported"            // 400: right, but not in this version; Field says what. 501: not on this node
	CodeInvalidRequest   = "invalid_request"        // 400
	CodeUnauthenticated  = "unauthenticated"        // 401
	CodeScopeTooLow      = "scope_too_low"          // 403
	CodeRootNotAllowed   = "root_not_allowed"       // 403
	CodeOwnerNotAllowed  = "owner_not_allowed"      // 403
	CodeNotAUser         = "not_a_user"             // 403, on the Unix socket
	CodeNotAuthorized    = "not_authorized"         // 403: the other node or a list of peers does not allow it
	CodeNotFound         = "not_found"              // 404
	CodeMethodNotAllowed = "method_not_allowed"     // 405
	CodeNotAcceptable    = "not_acceptable"         // 406
	CodeWrongState       = "wrong_state"            // 409
	CodeBufferExists     = "buffer_exists"          // 409
	CodeBufferBusy       = "buffer_busy"            // 409
	CodeBufferConfigured = "buffer_configured"      // 409
	CodeVersionMismatch  = "version_mismatch"       // 412: it has changed since; get it again
	CodeTooLarge         = "too_large"              // 413
	CodeMediaType        = "unsupported_media"      // 415
	CodeBadRange         = "range_not_satisfiable"  // 416
	CodeKeyReused        = "idempotency_key_reused" // 422
	CodeImpossible       = "impossible"             // 422; Reason says why
	CodeTooManyWaiters   = "too_many_waiters"       // 429
	CodeTooManyStreams   = "too_many_streams"       // 429
	CodeInternal         = "internal"               // 500
	CodePeerUnreachable  = "peer_unreachable"       // 502: the node that has the job, or the other side
	CodeQueueFull        = "queue_full"             // 503
	CodeStopping         = "stopping"               // 503
	CodeDraining         = "draining"               // 503
	CodeNotReady         = "not_ready"              // 503
	CodePeerRefused      = "peer_refused"           // 503: it declined for now
	CodeStoreFailed      = "store_failed"           // 503: the node cannot write its state
	CodeNoSpace          = "no_space"               // 507
)

// JobList is a page of GET /v1/jobs.
type JobList struct {
	Jobs          []job.Snapshot `json:"jobs"`
	NextPageToken string         `json:"next_page_token,omitempty"` // "" on the last page
}

// ReceivingList is a page of GET /v1/jobs?role=receiving.
type ReceivingList struct {
	Jobs          []job.Inbound `json:"jobs"`
	NextPageToken string        `json:"next_page_token,omitempty"`
}

// Version is GET /v1/version.
type Version struct {
	Node      string    `json:"node"`
	Version   string    `json:"version"`            // of the program
	Revision  string    `json:"revision,omitempty"` // of the source, "" if unknown
	API       string    `json:"api"`                // "v1"
	Go        string    `json:"go"`
	Platform  string    `json:"platform"` // "linux/amd64"
	StartedAt time.Time `json:"started_at"`
}

// Caller is GET /v1/caller: who asks, and what it may do.
type Caller struct {
	Owner string   `json:"owner"` // of the jobs it submits: "node/token-name", "node/uid:N"
	Scope string   `json:"scope"` // "read", "submit" or "admin"
	Read  []string `json:"read"`  // NODE:root, * is any: what its jobs may take from; never null
	Write []string `json:"write"` // and bring to; never null
}

// Devices is GET /v1/devices.
type Devices struct {
	Devices  []Device `json:"devices"`
	Hardware bool     `json:"hardware"` // false: no RDMA hardware is in use, the node is slow
	Reason   string   `json:"reason"`   // why these devices and no others
}

// Device is one that the node uses, or tried to, or passed over.
type Device struct {
	Name     string `json:"name"`
	Provider string `json:"provider"`  // "ibv", "soft"
	Used     bool   `json:"used"`      // lanes are made on it
	Why      string `json:"why"`       // why it is used, or not
	Software bool   `json:"software"`  // its data path runs on the CPU: soft, Soft-RoCE
	NUMANode int    `json:"numa_node"` // -1 when it belongs to none
	NetDev   string `json:"netdev,omitempty"`
	Detail   string `json:"detail,omitempty"` // firmware, driver: for people
	Error    string `json:"error,omitempty"`  // why it is not used
	// RelaxedOrdering: its memory is registered with PCIe relaxed ordering.
	RelaxedOrdering       bool   `json:"relaxed_ordering"`
	RelaxedOrderingReason string `json:"relaxed_ordering_reason,omitempty"`
	Ports                 []Port `json:"ports"` // of a device in use
}

// Port is a port of a device.
type Port struct {
	Number           int    `json:"number"`
	State            string `json:"state"`             // "active", "down", ...
	LinkLayer        string `json:"link_layer"`        // "infiniband", "ethernet"
	GID              string `json:"gid"`               // that sessions use, all zero when there is none
	GIDType          string `json:"gid_type"`          // "RoCE v2", "IB", "soft"
	LID              int    `json:"lid,omitempty"`     // on InfiniBand
	Address          string `json:"address,omitempty"` // IP address of the GID, if it is one
	NetDev           string `json:"netdev,omitempty"`
	MTUBytes         int    `json:"mtu_bytes"`
	RateBitPerSecond int64  `json:"rate_bits_per_second"`
	Error            string `json:"error,omitempty"` // why it cannot be used now
}

// Peers is GET /v1/peers.
type Peers struct {
	Peers []Peer `json:"peers"`
}

// Peer is another node, as seen from this one.
type Peer struct {
	Name        string     `json:"name"`
	Addresses   []string   `json:"addresses"`
	State       string     `json:"state"` // "connected", "connecting", "idle", "down"
	Fingerprint string     `json:"fingerprint,omitempty"`
	Since       *time.Time `json:"since"` // when the newest connection was made; null without one
	LastError   string     `json:"last_error,omitempty"`
	Rails       []Rail     `json:"rails"`
}

// Rail is a pair of ports that reach each other.
type Rail struct {
	LocalDevice   string `json:"local_device"`
	LocalPort     int    `json:"local_port"`
	RemoteDevice  string `json:"remote_device"`
	RemotePort    int    `json:"remote_port"`
	Provider      string `json:"provider"`
	Reason        string `json:"reason"`    // why this provider
	State         string `json:"state"`     // "up", "paused", "down"
	MTUBytes      int    `json:"mtu_bytes"` // the least of both ports
	LanesUp       int    `json:"lanes_up"`
	Lanes         int    `json:"lanes"`
	SentBytes     uint64 `json:"sent_bytes"`
	ReceivedBytes uint64 `json:"received_bytes"`
}

// Roots is GET /v1/roots.
type Roots struct {
	Roots []Root `json:"roots"`
}

// Root is a directory that jobs may name.
type Root struct {
	Name           string   `json:"name"`
	Path           string   `json:"path"`
	Read           []string `json:"read"`  // peers that may read; never null
	Write          []string `json:"write"` // peers that may write; never null
	Filesystem     string   `json:"filesystem"`
	FreeBytes      int64    `json:"free_bytes"`
	TotalBytes     int64    `json:"total_bytes"`
	QuotaBytes     int64    `json:"quota_bytes,omitempty"` // 0 is none
	MinFreeBytes   int64    `json:"min_free_bytes,omitempty"`
	AvailableError string   `json:"error,omitempty"` // why it cannot be used now
}

// Pollers is GET /v1/pollers.
type Pollers struct {
	Pollers []Poller `json:"pollers"`
}

// Poller is a pinned thread of the data path.
type Poller struct {
	ID              int     `json:"id"`
	NUMANode        int     `json:"numa_node"`
	CPU             *int    `json:"cpu"`  // null when it is not pinned
	Idle            string  `json:"idle"` // "spin", "adaptive"
	Lanes           int     `json:"lanes"`
	Steps           uint64  `json:"steps"`
	EmptySteps      uint64  `json:"empty_steps"`
	Parks           uint64  `json:"parks"`
	CPUSeconds      float64 `json:"cpu_seconds"`
	LongestGapMicro int64   `json:"longest_gap_us"`
}
