package verbs

import "time"

// Context is an open device. All methods may be called from any goroutine.
type Context interface {
	Device() DeviceInfo
	QueryDevice() (DeviceAttr, error)
	// QueryPort takes a port number, 1..Device().Ports.
	QueryPort(port uint8) (PortAttr, error)
	// QueryGIDTable returns the readable, non-zero entries; entries that can't
	// be read are left out, as in a container that sees only its own netdevs.
	QueryGIDTable(port uint8) ([]GIDEntry, error)

	AllocPD() (PD, error)
	// CreateCompChannel makes the descriptor that a parked poller waits on.
	CreateCompChannel() (CompChannel, error)
	CreateCQ(CQInitAttr) (CQ, error)

	// GetAsyncEvent waits up to timeout (0 polls) for the next asynchronous
	// event and acknowledges it before returning (ibv_get_async_event(3)).
	// ErrTimeout when none came, ErrClosed after Close. One reader at a time.
	GetAsyncEvent(timeout time.Duration) (AsyncEvent, error)

	// Counts tells what is open, for leak checks.
	Counts() Counts
	// Close closes the device. It fails with EBUSY, and closes nothing, while
	// Counts is not zero.
	Close() error
}

// Counts are the resources open on a Context.
type Counts struct {
	PD, MR, CQ, QP, AH, CompChannel int
}

// PD is a protection domain: a QP can use only the MRs of its own PD, as lkey
// or as rkey. All methods may be called from any goroutine.
type PD interface {
	Context() Context
	// RegMR registers mem, which is page aligned, whole pages long and not Go
	// heap memory. REMOTE_WRITE and REMOTE_ATOMIC need LOCAL_WRITE, else
	// EINVAL (ibv_reg_mr(3)).
	RegMR(mem []byte, access Access) (MR, error)
	CreateQP(QPInitAttr) (QP, error)
	CreateAH(AHAttr) (AH, error)
	// Dealloc fails with EBUSY while the PD has MRs, QPs or AHs.
	Dealloc() error
}

// Access is a set of permissions of an MR or a QP (enum ibv_access_flags).
type Access uint32

// The access flags, with the values of <infiniband/verbs.h>.
const (
	AccessLocalWrite      Access = 1 << 0
	AccessRemoteWrite     Access = 1 << 1
	AccessRemoteRead      Access = 1 << 2
	AccessRemoteAtomic    Access = 1 << 3
	AccessRelaxedOrdering Access = 1 << 20
)

// MR is a registered memory region.
type MR interface {
	PD() PD
	LKey() uint32
	RKey() uint32
	// Addr is the virtual address of the first byte; SGEs and RemoteAddr are
	// absolute addresses within [Addr, Addr+Length).
	Addr() uint64
	// Length in bytes.
	Length() uint64
	// Dereg revokes the keys. Only after every QP that may use them is
	// drained: what was posted fails, and memory must not be unmapped earlier.
	Dereg() error
}

// AH is an address handle for UD sends. It outlives the WRs that use it; posting
// with a destroyed one is EINVAL.
type AH interface {
	Destroy() error
}
