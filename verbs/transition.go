package verbs

import "syscall"

// InitMask is the exact mask of RESET to INIT for a transport; any other mask
// is EINVAL (ibv_modify_qp(3)).
func InitMask(t QPType) AttrMask {
	m := AttrState | AttrPKeyIndex | AttrPort
	if t == UD {
		return m | AttrQKey
	}
	return m | AttrAccessFlags
}

// RTRMask is the exact mask of INIT to RTR.
func RTRMask(t QPType) AttrMask {
	switch t {
	case RC:
		return AttrState | AttrAV | AttrPathMTU | AttrDestQPN | AttrRQPSN |
			AttrMaxDestRdAtomic | AttrMinRNRTimer
	case UC:
		return AttrState | AttrAV | AttrPathMTU | AttrDestQPN | AttrRQPSN
	}
	return AttrState
}

// RTSMask is the exact mask of RTR to RTS.
func RTSMask(t QPType) AttrMask {
	m := AttrState | AttrSQPSN
	if t == RC {
		m |= AttrTimeout | AttrRetryCnt | AttrRNRRetry | AttrMaxQPRdAtomic
	}
	return m
}

// CheckTransition applies the rules that hold for every provider: the state
// graph and the exact masks. It returns an *Error with EINVAL that says which
// bits are missing or too many.
func CheckTransition(t QPType, from QPState, attr *QPAttr, mask AttrMask) error {
	if mask&AttrState == 0 {
		return &Error{Op: "modify QP", Errno: syscall.EINVAL, Detail: "the mask lacks IBV_QP_STATE"}
	}
	var want AttrMask
	switch {
	case attr.State == StateErr || attr.State == StateReset:
		want = AttrState // from any state
	case from == StateReset && attr.State == StateInit:
		want = InitMask(t)
	case from == StateInit && attr.State == StateRTR:
		want = RTRMask(t)
	case from == StateRTR && attr.State == StateRTS:
		want = RTSMask(t)
	default:
		return &Error{Op: "modify QP", Errno: syscall.EINVAL,
			Detail: "no transition from " + from.String() + " to " + attr.State.String()}
	}
	if mask != want {
		return &Error{Op: "modify QP " + from.String() + " to " + attr.State.String(), Errno: syscall.EINVAL,
			Detail: maskDetail(want&^mask, mask&^want)}
	}
	return checkRanges(attr, mask)
}

// checkRanges refuses values that do not fit their field on the wire.
func checkRanges(a *QPAttr, mask AttrMask) error {
	bad := func(what string) error {
		return &Error{Op: "modify QP", Errno: syscall.EINVAL, Detail: what}
	}
	switch {
	case mask&AttrPathMTU != 0 && !a.PathMTU.Valid():
		return bad("path MTU is not one of 256..4096")
	case mask&AttrDestQPN != 0 && a.DestQPN >= 1<<24:
		return bad("destination QPN does not fit 24 bits")
	case mask&AttrRQPSN != 0 && a.RQPSN >= 1<<24, mask&AttrSQPSN != 0 && a.SQPSN >= 1<<24:
		return bad("PSN does not fit 24 bits")
	case mask&AttrMinRNRTimer != 0 && a.MinRNRTimer > 31, mask&AttrTimeout != 0 && a.Timeout > 31:
		return bad("timer does not fit 5 bits")
	case mask&AttrRetryCnt != 0 && a.RetryCnt > 7, mask&AttrRNRRetry != 0 && a.RNRRetry > 7:
		return bad("retry count does not fit 3 bits")
	}
	return nil
}

var maskNames = []struct {
	bit  AttrMask
	name string
}{
	{AttrState, "STATE"}, {AttrAccessFlags, "ACCESS_FLAGS"}, {AttrPKeyIndex, "PKEY_INDEX"},
	{AttrPort, "PORT"}, {AttrQKey, "QKEY"}, {AttrAV, "AV"}, {AttrPathMTU, "PATH_MTU"},
	{AttrTimeout, "TIMEOUT"}, {AttrRetryCnt, "RETRY_CNT"}, {AttrRNRRetry, "RNR_RETRY"},
	{AttrRQPSN, "RQ_PSN"}, {AttrMaxQPRdAtomic, "MAX_QP_RD_ATOMIC"}, {AttrMinRNRTimer, "MIN_RNR_TIMER"},
	{AttrSQPSN, "SQ_PSN"}, {AttrMaxDestRdAtomic, "MAX_DEST_RD_ATOMIC"}, {AttrDestQPN, "DEST_QPN"},
}

func maskDetail(missing, extra AttrMask) string {
	s := ""
	for _, m := range maskNames {
		if missing&m.bit != 0 {
			s += " missing " + m.name
		}
		if extra&m.bit != 0 {
			s += " extra " + m.name
		}
	}
	return "attribute mask:" + s
}
