package verbs

import (
	"errors"
	"strings"
	"syscall"
	"testing"
)

var allStates = []QPState{StateReset, StateInit, StateRTR, StateRTS, StateSQD, StateSQE, StateErr}

// transitionMasks is the table of ibv_modify_qp(3), by bit names.
var transitionMasks = []struct {
	typ      QPType
	from, to QPState
	mask     string
}{
	{RC, StateReset, StateInit, "STATE PKEY_INDEX PORT ACCESS_FLAGS"},
	{UC, StateReset, StateInit, "STATE PKEY_INDEX PORT ACCESS_FLAGS"},
	{UD, StateReset, StateInit, "STATE PKEY_INDEX PORT QKEY"},
	{RC, StateInit, StateRTR, "STATE AV PATH_MTU DEST_QPN RQ_PSN MAX_DEST_RD_ATOMIC MIN_RNR_TIMER"},
	{UC, StateInit, StateRTR, "STATE AV PATH_MTU DEST_QPN RQ_PSN"},
	{UD, StateInit, StateRTR, "STATE"},
	{RC, StateRTR, StateRTS, "STATE SQ_PSN TIMEOUT RETRY_CNT RNR_RETRY MAX_QP_RD_ATOMIC"},
	{UC, StateRTR, StateRTS, "STATE SQ_PSN"},
	{UD, StateRTR, StateRTS, "STATE SQ_PSN"},
}

// ibvMaskBits are the values of enum ibv_qp_attr_mask.
var ibvMaskBits = map[string]AttrMask{"STATE": 1 << 0, "ACCESS_FLAGS": 1 << 3, "PKEY_INDEX": 1 << 4, "PORT": 1 << 5,
	"QKEY": 1 << 6, "AV": 1 << 7, "PATH_MTU": 1 << 8, "TIMEOUT": 1 << 9, "RETRY_CNT": 1 << 10, "RNR_RETRY": 1 << 11,
	"RQ_PSN": 1 << 12, "MAX_QP_RD_ATOMIC": 1 << 13, "MIN_RNR_TIMER": 1 << 15, "SQ_PSN": 1 << 16,
	"MAX_DEST_RD_ATOMIC": 1 << 17, "DEST_QPN": 1 << 20}

// wantMask is the mask the table asks for, and whether there is a transition.
func wantMask(typ QPType, from, to QPState) (AttrMask, bool) {
	if to == StateErr || to == StateReset {
		return AttrState, true
	}
	for _, row := range transitionMasks {
		if row.typ == typ && row.from == from && row.to == to {
			var mask AttrMask
			for _, name := range strings.Fields(row.mask) {
				mask |= ibvMaskBits[name]
			}
			return mask, true
		}
	}
	return 0, false
}

func validAttr(to QPState) *QPAttr {
	return &QPAttr{State: to, Port: 1, PathMTU: MTU1024, DestQPN: 5, RQPSN: 0xffffff, SQPSN: 0xffffff,
		MinRNRTimer: 31, Timeout: 31, RetryCnt: 7, RNRRetry: 7}
}

// TestCheckTransition goes through every transport, every pair of states and
// every mask that is one bit off.
func TestCheckTransition(t *testing.T) {
	for _, typ := range []QPType{RC, UC, UD} {
		for _, from := range allStates {
			for _, to := range allStates {
				mask, legal := wantMask(typ, from, to)
				if !legal {
					// No mask makes it legal.
					for _, m := range []AttrMask{AttrState, InitMask(typ), RTRMask(typ), RTSMask(typ)} {
						wantEINVAL(t, CheckTransition(typ, from, validAttr(to), m), typ, from, to, "no transition")
					}
					continue
				}
				if err := CheckTransition(typ, from, validAttr(to), mask); err != nil {
					t.Errorf("%v %v to %v: %v", typ, from, to, err)
				}
				checkOneBitOff(t, typ, from, to, mask)
			}
		}
	}
}

func checkOneBitOff(t *testing.T, typ QPType, from, to QPState, mask AttrMask) {
	t.Helper()
	for name, bit := range ibvMaskBits {
		want := "extra " + name
		switch {
		case name == "STATE":
			want = "IBV_QP_STATE"
		case mask&bit != 0:
			want = "missing " + name
		}
		wantEINVAL(t, CheckTransition(typ, from, validAttr(to), mask^bit), typ, from, to, want)
	}
	// A bit that the API has no name for is refused as well.
	if err := CheckTransition(typ, from, validAttr(to), mask|1<<30); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("%v %v to %v with an unknown bit: %v", typ, from, to, err)
	}
}

func wantEINVAL(t *testing.T, err error, typ QPType, from, to QPState, detail string) {
	t.Helper()
	var e *Error
	if !errors.Is(err, syscall.EINVAL) || !errors.As(err, &e) || !strings.Contains(e.Detail, detail) {
		t.Errorf("%v %v to %v: %v, want EINVAL with %q", typ, from, to, err, detail)
	}
}

func TestMaskFunctions(t *testing.T) {
	for _, row := range transitionMasks {
		want, _ := wantMask(row.typ, row.from, row.to)
		got := map[QPState]AttrMask{StateInit: InitMask(row.typ), StateRTR: RTRMask(row.typ), StateRTS: RTSMask(row.typ)}[row.to]
		if got != want {
			t.Errorf("%v to %v: mask %#x, want %#x", row.typ, row.to, got, want)
		}
	}
}

// TestCheckRanges: each field at its limit is fine, one beyond is EINVAL; and
// a field that the mask leaves out is not looked at.
func TestCheckRanges(t *testing.T) {
	for _, c := range []struct {
		name     string
		from, to QPState
		set      func(*QPAttr, bool) // to the limit, or beyond it
	}{
		{"MTU low", StateInit, StateRTR, func(a *QPAttr, bad bool) { a.PathMTU = pick(bad, MTU(0), MTU256) }},
		{"MTU high", StateInit, StateRTR, func(a *QPAttr, bad bool) { a.PathMTU = pick(bad, MTU(6), MTU4096) }},
		{"destination QPN", StateInit, StateRTR, func(a *QPAttr, bad bool) { a.DestQPN = pick[uint32](bad, 1<<24, 1<<24-1) }},
		{"RQ PSN", StateInit, StateRTR, func(a *QPAttr, bad bool) { a.RQPSN = pick[uint32](bad, 1<<24, 1<<24-1) }},
		{"SQ PSN", StateRTR, StateRTS, func(a *QPAttr, bad bool) { a.SQPSN = pick[uint32](bad, 1<<24, 1<<24-1) }},
		{"RNR timer", StateInit, StateRTR, func(a *QPAttr, bad bool) { a.MinRNRTimer = pick[uint8](bad, 32, 31) }},
		{"timeout", StateRTR, StateRTS, func(a *QPAttr, bad bool) { a.Timeout = pick[uint8](bad, 32, 31) }},
		{"retry count", StateRTR, StateRTS, func(a *QPAttr, bad bool) { a.RetryCnt = pick[uint8](bad, 8, 7) }},
		{"RNR retry", StateRTR, StateRTS, func(a *QPAttr, bad bool) { a.RNRRetry = pick[uint8](bad, 8, 7) }},
	} {
		mask, _ := wantMask(RC, c.from, c.to)
		attr := validAttr(c.to)
		c.set(attr, false)
		if err := CheckTransition(RC, c.from, attr, mask); err != nil {
			t.Errorf("%s at its limit: %v", c.name, err)
		}
		c.set(attr, true)
		if err := CheckTransition(RC, c.from, attr, mask); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%s beyond its limit: %v", c.name, err)
		}
		attr.State = StateErr
		if err := CheckTransition(RC, c.from, attr, AttrState); err != nil {
			t.Errorf("%s, not in the mask: %v", c.name, err)
		}
	}
}

func pick[T any](first bool, a, b T) T {
	if first {
		return a
	}
	return b
}
