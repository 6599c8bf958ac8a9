package verbs

import "fmt"

// QPType is the transport service of a QP.
type QPType uint8

// The transport services.
const (
	RC QPType = 2 // IBV_QPT_RC: reliable connection
	UC QPType = 3 // IBV_QPT_UC: unreliable connection
	UD QPType = 4 // IBV_QPT_UD: unreliable datagram
)

func (t QPType) String() string {
	switch t {
	case RC:
		return "RC"
	case UC:
		return "UC"
	case UD:
		return "UD"
	}
	return fmt.Sprintf("QPType(%d)", uint8(t))
}

// QPState is a state of the QP state machine.
type QPState uint8

// The QP states (enum ibv_qp_state).
const (
	StateReset QPState = iota
	StateInit
	StateRTR
	StateRTS
	StateSQD
	StateSQE
	StateErr
)

func (s QPState) String() string {
	names := [...]string{"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"}
	if int(s) < len(names) {
		return names[s]
	}
	return fmt.Sprintf("QPState(%d)", uint8(s))
}

// QPCap sizes a QP's queues; a provider may round up, and tells what it chose
// through QP.Cap.
type QPCap struct {
	MaxSendWR, MaxRecvWR   int
	MaxSendSGE, MaxRecvSGE int
	MaxInlineBytes         int
}

// QPInitAttr describes a QP to create.
type QPInitAttr struct {
	Type           QPType
	SendCQ, RecvCQ CQ
	Cap            QPCap
	// SignalAll is sq_sig_all: every send WR completes whether or not it has
	// SendSignaled.
	SignalAll bool
}

// AttrMask names the attributes that Modify sets (enum ibv_qp_attr_mask).
type AttrMask uint32

// The mask bits, with the values of <infiniband/verbs.h>.
const (
	AttrState           AttrMask = 1 << 0
	AttrAccessFlags     AttrMask = 1 << 3
	AttrPKeyIndex       AttrMask = 1 << 4
	AttrPort            AttrMask = 1 << 5
	AttrQKey            AttrMask = 1 << 6
	AttrAV              AttrMask = 1 << 7
	AttrPathMTU         AttrMask = 1 << 8
	AttrTimeout         AttrMask = 1 << 9
	AttrRetryCnt        AttrMask = 1 << 10
	AttrRNRRetry        AttrMask = 1 << 11
	AttrRQPSN           AttrMask = 1 << 12
	AttrMaxQPRdAtomic   AttrMask = 1 << 13
	AttrMinRNRTimer     AttrMask = 1 << 15
	AttrSQPSN           AttrMask = 1 << 16
	AttrMaxDestRdAtomic AttrMask = 1 << 17
	AttrDestQPN         AttrMask = 1 << 20
)

// QPAttr are the attributes of Modify and Query; which fields count is the
// mask's to say.
type QPAttr struct {
	State           QPState
	AccessFlags     Access // what the peer may do
	PKeyIndex       uint16
	Port            uint8
	QKey            uint32
	AV              AHAttr
	PathMTU         MTU
	DestQPN         uint32 // 24 bits
	RQPSN, SQPSN    uint32 // 24 bits, random
	MaxDestRdAtomic uint8
	MaxRdAtomic     uint8
	MinRNRTimer     uint8 // encoded, 0..31; 12 is 0.64 ms, 0 is 655.36 ms
	Timeout         uint8 // 4.096 us << Timeout; 0 is infinite
	RetryCnt        uint8 // 0..7
	RNRRetry        uint8 // 0..6, 7 is infinite
	// RemoteConnData is the peer's QP.ConnData, used at the transition to RTR
	// by providers that have any; it needs no mask bit.
	RemoteConnData []byte
}

// AHAttr is an address vector (ibv_create_ah(3)).
type AHAttr struct {
	DLID      uint16
	SL        uint8
	Port      uint8
	IsGlobal  bool // always on RoCE and soft
	DGID      GID
	SGIDIndex int
	HopLimit  uint8 // 64; 1 does not pass a router
	TClass    uint8
	FlowLabel uint32
}

// QP is a queue pair. PostSend, PostRecv, Modify, Query and Destroy belong to
// the owner of its CQs; the rest may be called from any goroutine.
type QP interface {
	PD() PD
	Type() QPType
	QPN() uint32 // 24 bits
	Cap() QPCap
	// ConnData is what the peer's RTR transition needs beyond GID and QPN, at
	// most MaxConnData bytes, to be carried over an authenticated channel only
	// (soft: port and secret); nil on hardware.
	ConnData() []byte
	// Modify changes the state and attributes. A missing or an extra mask bit
	// is EINVAL and changes nothing (ibv_modify_qp(3)). Moving to ERR flushes
	// every outstanding WR to the CQs; moving to RESET forgets them, and the
	// completions that were not polled.
	Modify(attr *QPAttr, mask AttrMask) error
	Query() (QPAttr, error)
	// PostSend posts a chain in order and returns how many were accepted;
	// fewer than len(wrs) comes with the error of the first that was not:
	// ENOMEM full, EINVAL bad WR or state. Those before it are posted. It
	// keeps no reference to wrs. In ERR a provider may accept the WR and flush
	// it, or refuse.
	PostSend(wrs []SendWR) (int, error)
	// PostRecv is the same for receives, from INIT on.
	PostRecv(wrs []RecvWR) (int, error)
	// Destroy frees the QP; outstanding WRs complete no more, so drain first:
	// Modify to ERR, poll until every WR posted has completed.
	Destroy() error
}

// MaxConnData bounds QP.ConnData, in bytes.
const MaxConnData = 64
