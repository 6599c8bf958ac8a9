//go:build linux

package ibv

// #cgo noescape mv_post_send
// #cgo nocallback mv_post_send
// #cgo noescape mv_post_recv
// #cgo nocallback mv_post_recv
// #include "shim.h"
import "C"

import (
	"fmt"
	"math/bits"
	"syscall"
	"unsafe"

	"mover/verbs"
)

// maxMessage is the longest message of any transport, in bytes.
const maxMessage = 1 << 31

const knownSendFlags = verbs.SendFence | verbs.SendSignaled | verbs.SendSolicited | verbs.SendInline

// operations are those of a transport, a bit each; 0 for an unknown one
// (ibv_post_send(3), the table of opcodes).
func operations(t verbs.QPType) uint32 {
	const sends = 1<<verbs.OpSend | 1<<verbs.OpSendWithImm
	const writes = 1<<verbs.OpWrite | 1<<verbs.OpWriteWithImm
	switch t {
	case verbs.RC:
		return sends | writes | 1<<verbs.OpRead | 1<<verbs.OpCompareSwap | 1<<verbs.OpFetchAdd
	case verbs.UC:
		return sends | writes
	case verbs.UD:
		return sends
	}
	return 0
}

// PostSend crosses into C once for each postBatch of the chain.
func (q *queuePair) PostSend(wrs []verbs.SendWR) (int, error) {
	// Checked here, because rxe puts a send into its ring in any state.
	if q.state != verbs.StateRTS && q.state != verbs.StateErr {
		return q.wrongState("post send", len(wrs))
	}
	if len(q.sends) == 0 {
		return q.noQueue("post send", len(wrs))
	}
	done := 0
	for done < len(wrs) {
		batch := wrs[done:min(done+len(q.sends), len(wrs))]
		n, bad := q.fillSends(batch)
		if n > 0 {
			r := C.mv_post_send(q.ptr, C.uintptr_t(uintptr(unsafe.Pointer(unsafe.SliceData(q.sends)))), C.uint32_t(n))
			posted, err := q.outcome("post send", uint64(r), n)
			done += posted
			if err != nil {
				return done, err
			}
		}
		if bad != nil {
			return done, bad
		}
	}
	return done, nil
}

// fillSends writes the WRs into the array, up to the first that must not be
// posted.
func (q *queuePair) fillSends(wrs []verbs.SendWR) (int, error) {
	sge := 0
	for i := range wrs {
		wr, w := &wrs[i], &q.sends[i]
		if wr.Op > verbs.OpFetchAdd || q.ops&(1<<wr.Op) == 0 || wr.Flags&^knownSendFlags != 0 || len(wr.SGL) > q.cap.MaxSendSGE {
			return i, q.refuse(wr)
		}
		total := uint64(0)
		sges := q.sendSGEs[sge:]
		for j := range wr.SGL {
			s, c := &wr.SGL[j], &sges[j]
			c.addr, c.length, c.lkey = C.uint64_t(s.Addr), C.uint32_t(s.Length), C.uint32_t(s.LKey)
			total += uint64(s.Length)
		}
		sge += q.cap.MaxSendSGE
		if total > maxMessage || wr.Flags&verbs.SendInline != 0 && (total > q.maxInline || wr.Op >= verbs.OpRead) {
			return i, q.refuse(wr)
		}
		w.wr_id, w.num_sge = C.uint64_t(wr.WRID), C.int32_t(len(wr.SGL))
		w.opcode, w.send_flags = C.uint32_t(wr.Op), C.uint32_t(wr.Flags)
		w.imm = C.uint32_t(bits.ReverseBytes32(wr.Imm))
		if q.typ == verbs.UD {
			ah, ok := wr.AH.(*addressHandle)
			if !ok || ah == nil || ah.pd != q.pd || ah.gone.Load() {
				return i, q.refuse(wr)
			}
			w.arg[0] = C.uint64_t(ah.ptr)
			w.arg[1] = C.uint64_t(wr.RemoteQPN) | C.uint64_t(wr.RemoteQKey)<<32
			continue
		}
		w.arg[0], w.arg[1] = C.uint64_t(wr.RemoteAddr), C.uint64_t(wr.RKey)
		if wr.Op >= verbs.OpCompareSwap {
			if total != 8 || len(wr.SGL) != 1 {
				return i, q.refuse(wr)
			}
			w.arg[1], w.arg[2], w.arg[3] = C.uint64_t(wr.CompareAdd), C.uint64_t(wr.Swap), C.uint64_t(wr.RKey)
		}
	}
	return len(wrs), nil
}

// refuse says what is wrong with a WR that fillSends stopped at.
func (q *queuePair) refuse(wr *verbs.SendWR) error {
	total := uint64(0)
	for _, s := range wr.SGL {
		total += uint64(s.Length)
	}
	detail := ""
	switch {
	case wr.Op > verbs.OpFetchAdd || q.ops&(1<<wr.Op) == 0:
		detail = fmt.Sprintf("%v has no %v", q.typ, wr.Op)
	case wr.Flags&^knownSendFlags != 0:
		detail = fmt.Sprintf("unknown flags %#x", uint8(wr.Flags))
	case len(wr.SGL) > q.cap.MaxSendSGE:
		detail = fmt.Sprintf("%d SGEs, the QP has %d a WR", len(wr.SGL), q.cap.MaxSendSGE)
	case total > maxMessage:
		detail = fmt.Sprintf("%d bytes, a message has at most %d", total, int64(maxMessage))
	case wr.Flags&verbs.SendInline != 0 && wr.Op >= verbs.OpRead:
		detail = wr.Op.String() + " can't be inline"
	case wr.Flags&verbs.SendInline != 0 && total > q.maxInline:
		detail = fmt.Sprintf("%d bytes inline, the QP has %d", total, q.maxInline)
	case q.typ == verbs.UD:
		detail = "a datagram needs an address handle of the QP's PD that is not destroyed"
	default:
		detail = fmt.Sprintf("%v needs one SGE of 8 bytes", wr.Op)
	}
	return &verbs.Error{Op: "post send", Errno: syscall.EINVAL, Detail: detail}
}

// PostRecv is refused in ERR as in RESET: rxe would queue the receive and never
// complete it.
func (q *queuePair) PostRecv(wrs []verbs.RecvWR) (int, error) {
	if q.state == verbs.StateReset || q.state == verbs.StateErr {
		return q.wrongState("post receive", len(wrs))
	}
	if len(q.recvs) == 0 {
		return q.noQueue("post receive", len(wrs))
	}
	done := 0
	for done < len(wrs) {
		batch := wrs[done:min(done+len(q.recvs), len(wrs))]
		n, bad := q.fillRecvs(batch)
		if n > 0 {
			r := C.mv_post_recv(q.ptr, C.uintptr_t(uintptr(unsafe.Pointer(unsafe.SliceData(q.recvs)))), C.uint32_t(n))
			posted, err := q.outcome("post receive", uint64(r), n)
			done += posted
			if err != nil {
				return done, err
			}
		}
		if bad != nil {
			return done, bad
		}
	}
	return done, nil
}

func (q *queuePair) fillRecvs(wrs []verbs.RecvWR) (int, error) {
	sge := 0
	for i := range wrs {
		wr, w := &wrs[i], &q.recvs[i]
		if len(wr.SGL) > q.cap.MaxRecvSGE {
			return i, &verbs.Error{Op: "post receive", Errno: syscall.EINVAL,
				Detail: fmt.Sprintf("%d SGEs, the QP has %d a WR", len(wr.SGL), q.cap.MaxRecvSGE)}
		}
		sges := q.recvSGEs[sge:]
		for j := range wr.SGL {
			s, c := &wr.SGL[j], &sges[j]
			c.addr, c.length, c.lkey = C.uint64_t(s.Addr), C.uint32_t(s.Length), C.uint32_t(s.LKey)
		}
		sge += q.cap.MaxRecvSGE
		w.wr_id, w.num_sge = C.uint64_t(wr.WRID), C.int32_t(len(wr.SGL))
	}
	return len(wrs), nil
}

// outcome reads the answer of the shim for n WRs.
func (q *queuePair) outcome(op string, r uint64, n int) (int, error) {
	posted, errno := int(r>>32), uint32(r)
	switch {
	case errno == 0:
		return n, nil
	case errno&C.MV_UNKNOWN_POST != 0:
		return q.unknownOutcome(op, syscall.Errno(errno&^C.MV_UNKNOWN_POST), n)
	}
	return posted, q.postFailed(op, syscall.Errno(errno))
}

func (q *queuePair) postFailed(op string, errno syscall.Errno) error {
	detail := q.what
	if errno == syscall.ENOMEM {
		detail += " is full"
	}
	return &verbs.Error{Op: op, Errno: errno, Detail: detail}
}

// unknownOutcome: the driver failed and did not say at which WR, as rxe does
// when its doorbell fails. They may be in its ring and complete any time, so
// they count as accepted; moving the QP to ERR flushes those that are.
func (q *queuePair) unknownOutcome(op string, errno syscall.Errno, n int) (int, error) {
	q.dev.cfg.Logger.Warn("the driver does not say how far a post got; the QP goes to ERR", "device", q.dev.info.Name,
		"op", op, "qpn", q.qpn, "errno", errno.Error())
	if errno == syscall.EIO || errno == syscall.ENODEV {
		q.dev.fail() // the doorbell of a device that is gone
		return n, nil
	}
	if err := q.Modify(&verbs.QPAttr{State: verbs.StateErr}, verbs.AttrState); err != nil {
		q.dev.cfg.Logger.Error("moving a QP to ERR", "device", q.dev.info.Name, "qpn", q.qpn, "error", err)
	}
	return n, nil
}

func (q *queuePair) wrongState(op string, n int) (int, error) {
	if n == 0 {
		return 0, nil
	}
	return 0, &verbs.Error{Op: op, Errno: syscall.EINVAL, Detail: fmt.Sprintf("%s is in %v", q.what, q.state)}
}

func (q *queuePair) noQueue(op string, n int) (int, error) {
	if n == 0 {
		return 0, nil
	}
	return 0, &verbs.Error{Op: op, Errno: syscall.ENOMEM, Detail: q.what + " has no such queue"}
}
