package verbs

import "fmt"

// WCStatus is the status of a completion (enum ibv_wc_status).
type WCStatus uint8

// The completion statuses, with the values of <infiniband/verbs.h>.
const (
	WCSuccess        WCStatus = 0
	WCLocLenErr      WCStatus = 1
	WCLocQPOpErr     WCStatus = 2
	WCLocEECOpErr    WCStatus = 3
	WCLocProtErr     WCStatus = 4
	WCFlushErr       WCStatus = 5
	WCMWBindErr      WCStatus = 6
	WCBadRespErr     WCStatus = 7
	WCLocAccessErr   WCStatus = 8
	WCRemInvReqErr   WCStatus = 9
	WCRemAccessErr   WCStatus = 10
	WCRemOpErr       WCStatus = 11
	WCRetryExcErr    WCStatus = 12
	WCRNRRetryExcErr WCStatus = 13
	WCLocRDDViolErr  WCStatus = 14
	WCRemInvRDReqErr WCStatus = 15
	WCRemAbortErr    WCStatus = 16
	WCInvEECNErr     WCStatus = 17
	WCInvEECStateErr WCStatus = 18
	WCFatalErr       WCStatus = 19
	WCRespTimeoutErr WCStatus = 20
	WCGeneralErr     WCStatus = 21
	wcStatusCount             = 22
)

var wcStatusNames = [wcStatusCount]string{
	"SUCCESS", "LOC_LEN_ERR", "LOC_QP_OP_ERR", "LOC_EEC_OP_ERR", "LOC_PROT_ERR", "WR_FLUSH_ERR",
	"MW_BIND_ERR", "BAD_RESP_ERR", "LOC_ACCESS_ERR", "REM_INV_REQ_ERR", "REM_ACCESS_ERR", "REM_OP_ERR",
	"RETRY_EXC_ERR", "RNR_RETRY_EXC_ERR", "LOC_RDD_VIOL_ERR", "REM_INV_RD_REQ_ERR", "REM_ABORT_ERR",
	"INV_EECN_ERR", "INV_EEC_STATE_ERR", "FATAL_ERR", "RESP_TIMEOUT_ERR", "GENERAL_ERR",
}

func (s WCStatus) String() string {
	if int(s) < len(wcStatusNames) {
		return wcStatusNames[s]
	}
	return fmt.Sprintf("WCStatus(%d)", uint8(s))
}

// Blame says whose fault a status is: what may be charged to a rail and what
// is a bug.
type Blame uint8

// The classes of completion errors.
const (
	BlameNone   Blame = iota // success, or flushed because of an earlier error
	BlameLocal               // length, protection, QP state: a bug or a bad buffer
	BlameRemote              // the peer refused it
	BlamePath                // the path or the peer did not answer
)

// Blame classifies the status.
func (s WCStatus) Blame() Blame {
	switch s {
	case WCSuccess, WCFlushErr:
		return BlameNone
	case WCRemInvReqErr, WCRemAccessErr, WCRemOpErr, WCRemInvRDReqErr, WCRemAbortErr, WCBadRespErr:
		return BlameRemote
	case WCRetryExcErr, WCRNRRetryExcErr, WCRespTimeoutErr:
		return BlamePath
	}
	return BlameLocal
}

// WCOpcode says what completed (enum ibv_wc_opcode); valid on success only.
type WCOpcode uint8

// The completion opcodes, with the values of <infiniband/verbs.h>.
const (
	WCSend           WCOpcode = 0
	WCRDMAWrite      WCOpcode = 1
	WCRDMARead       WCOpcode = 2
	WCCompSwap       WCOpcode = 3
	WCFetchAdd       WCOpcode = 4
	WCRecv           WCOpcode = 128
	WCRecvRDMAWithIm WCOpcode = 129 // IBV_WC_RECV_RDMA_WITH_IMM
)

// WCFlags tell which optional fields of a WC are valid.
type WCFlags uint8

// The completion flags.
const (
	WCGRH     WCFlags = 1 << 0 // 40 bytes of GRH precede the data (UD)
	WCWithImm WCFlags = 1 << 1
)

// WC is a work completion. When Status is not WCSuccess, only WRID, Status,
// QPN and VendorErr are valid.
type WC struct {
	WRID      uint64
	Status    WCStatus
	Opcode    WCOpcode
	Flags     WCFlags
	ByteLen   uint32 // receives: bytes of the message
	Imm       uint32 // host order; from the peer: validate it
	QPN       uint32 // the local QP
	SrcQPN    uint32 // UD
	VendorErr uint32
}
