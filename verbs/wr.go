package verbs

import "fmt"

// Opcode is the operation of a send WR (enum ibv_wr_opcode).
type Opcode uint8

// The send operations, with the values of <infiniband/verbs.h>.
const (
	OpWrite        Opcode = 0 // IBV_WR_RDMA_WRITE
	OpWriteWithImm Opcode = 1
	OpSend         Opcode = 2
	OpSendWithImm  Opcode = 3
	OpRead         Opcode = 4
	OpCompareSwap  Opcode = 5
	OpFetchAdd     Opcode = 6
)

func (o Opcode) String() string {
	names := [...]string{"RDMA_WRITE", "RDMA_WRITE_WITH_IMM", "SEND", "SEND_WITH_IMM",
		"RDMA_READ", "ATOMIC_CMP_AND_SWP", "ATOMIC_FETCH_AND_ADD"}
	if int(o) < len(names) {
		return names[o]
	}
	return fmt.Sprintf("Opcode(%d)", uint8(o))
}

// SendFlags are the flags of a send WR (enum ibv_send_flags).
type SendFlags uint8

// The send flags.
const (
	SendFence     SendFlags = 1 << 0
	SendSignaled  SendFlags = 1 << 1
	SendSolicited SendFlags = 1 << 2
	SendInline    SendFlags = 1 << 3
)

// SGE is a piece of local, registered memory.
type SGE struct {
	Addr   uint64 // absolute virtual address
	Length uint32 // bytes
	LKey   uint32
}

// SendWR is a work request of the send queue. An empty SGL is a message of no
// bytes. A WR is at most 2^31 bytes.
type SendWR struct {
	WRID  uint64
	Op    Opcode
	Flags SendFlags
	Imm   uint32 // host order; the provider puts it on the wire in network order
	SGL   []SGE

	// writes, reads and atomics
	RemoteAddr uint64
	RKey       uint32

	// atomics
	CompareAdd, Swap uint64

	// UD
	AH         AH
	RemoteQPN  uint32
	RemoteQKey uint32
}

// RecvWR is a work request of the receive queue.
type RecvWR struct {
	WRID uint64
	SGL  []SGE
}
