//go:build linux

package ibv

// #include "shim.h"
import "C"

import (
	"fmt"
	"syscall"

	"mover/verbs"
)

// Modify checks the state graph, the exact mask and the values before the
// kernel does: drivers differ in what they let pass.
func (q *queuePair) Modify(attr *verbs.QPAttr, mask verbs.AttrMask) error {
	op := "modify QP " + q.state.String() + " to " + attr.State.String()
	if q.gone.Load() { // the owner alone destroys
		return &verbs.Error{Op: op, Errno: syscall.EINVAL, Detail: q.what + " was destroyed"}
	}
	if err := verbs.CheckTransition(q.typ, q.state, attr, mask); err != nil {
		return err
	}
	av := attr.AV
	if av.Port == 0 {
		av.Port = q.port // the QP's own
	}
	if err := q.checkValues(op, attr, &av, mask); err != nil {
		return err
	}
	errno := C.mv_modify_qp(q.dev.lib.handle, q.ptr, qpAttr(attr, &av), C.uint32_t(mask))
	if errno != 0 {
		return q.dev.failed(op, errno, q.modifyDetail(syscall.Errno(errno), &av, mask))
	}
	q.state = attr.State
	if q.state == verbs.StateReset {
		q.dropCompletions()
	}
	if mask&verbs.AttrPort != 0 {
		q.port = attr.Port
	}
	return nil
}

// checkValues applies the limits of the port.
func (q *queuePair) checkValues(op string, attr *verbs.QPAttr, av *verbs.AHAttr, mask verbs.AttrMask) error {
	if mask&verbs.AttrPort != 0 {
		if err := q.dev.checkPort(op, attr.Port); err != nil {
			return err
		}
	}
	if mask&verbs.AttrAV == 0 {
		return nil
	}
	// A different port in the address is allowed by the API and by no use: the
	// alternate path is not offered.
	if av.Port != q.port {
		return &verbs.Error{Op: op, Errno: syscall.EINVAL, Detail: fmt.Sprintf("the address names port %d, the QP is on port %d", av.Port, q.port)}
	}
	port, err := q.dev.QueryPort(q.port)
	if err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	if err := checkAddress(op, av, port); err != nil {
		return err
	}
	// The active MTU, not the largest: rxe takes more than its port can carry.
	if mask&verbs.AttrPathMTU != 0 && attr.PathMTU > port.ActiveMTU {
		return &verbs.Error{Op: op, Errno: syscall.EINVAL,
			Detail: fmt.Sprintf("path MTU %v, and port %d has an active MTU of %v", attr.PathMTU, q.port, port.ActiveMTU)}
	}
	return nil
}

func (q *queuePair) modifyDetail(errno syscall.Errno, av *verbs.AHAttr, mask verbs.AttrMask) string {
	// A QP that failed by itself is in ERR, whatever Modify made of it.
	if now, err := q.query(); err == nil && now.State != q.state {
		return fmt.Sprintf("%s is in %v by now", q.what, now.State)
	}
	if mask&verbs.AttrAV != 0 {
		return q.dev.routeDetail(errno, av)
	}
	return q.what
}

func qpAttr(a *verbs.QPAttr, av *verbs.AHAttr) C.struct_mv_qp_attr {
	return C.struct_mv_qp_attr{
		state: C.uint32_t(a.State), access: C.uint32_t(a.AccessFlags), qkey: C.uint32_t(a.QKey), mtu: C.uint32_t(a.PathMTU),
		dest_qpn: C.uint32_t(a.DestQPN), rq_psn: C.uint32_t(a.RQPSN), sq_psn: C.uint32_t(a.SQPSN),
		pkey_index: C.uint16_t(a.PKeyIndex), port: C.uint8_t(a.Port), max_dest_rd_atomic: C.uint8_t(a.MaxDestRdAtomic),
		max_rd_atomic: C.uint8_t(a.MaxRdAtomic), min_rnr_timer: C.uint8_t(a.MinRNRTimer), timeout: C.uint8_t(a.Timeout),
		retry_cnt: C.uint8_t(a.RetryCnt), rnr_retry: C.uint8_t(a.RNRRetry), ah: ahAttr(av),
	}
}

// Query asks the kernel, and so also learns of a QP that failed by itself.
func (q *queuePair) Query() (verbs.QPAttr, error) {
	a, err := q.query()
	if err == nil && a.State == verbs.StateErr {
		q.state = verbs.StateErr
	}
	return a, err
}

func (q *queuePair) query() (verbs.QPAttr, error) {
	const op = "query QP"
	if q.gone.Load() {
		return verbs.QPAttr{}, &verbs.Error{Op: op, Errno: syscall.EINVAL, Detail: q.what + " was destroyed"}
	}
	a := C.mv_query_qp(q.dev.lib.handle, q.ptr)
	if a.err != 0 {
		return verbs.QPAttr{}, q.dev.failed(op, a.err, q.what)
	}
	return verbs.QPAttr{
		State: verbs.QPState(a.state), AccessFlags: verbs.Access(a.access), PKeyIndex: uint16(a.pkey_index), Port: uint8(a.port),
		QKey: uint32(a.qkey), AV: ahAttrOf(&a.ah), PathMTU: verbs.MTU(a.mtu), DestQPN: uint32(a.dest_qpn),
		RQPSN: uint32(a.rq_psn), SQPSN: uint32(a.sq_psn), MaxDestRdAtomic: uint8(a.max_dest_rd_atomic),
		MaxRdAtomic: uint8(a.max_rd_atomic), MinRNRTimer: uint8(a.min_rnr_timer), Timeout: uint8(a.timeout),
		RetryCnt: uint8(a.retry_cnt), RNRRetry: uint8(a.rnr_retry),
	}, nil
}
