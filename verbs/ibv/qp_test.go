//go:build linux && cgo

package ibv

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mover/verbs"
)

// TestMasks: the bits arrive exactly, for each transport, with their values;
// with one bit more or less nothing reaches the library.
func TestMasks(t *testing.T) {
	for _, typ := range []verbs.QPType{verbs.RC, verbs.UC, verbs.UD} {
		t.Run(typ.String(), func(t *testing.T) {
			r := newRig(t, typ)
			for _, step := range []struct {
				attr *verbs.QPAttr
				mask verbs.AttrMask
			}{{initAttr(), verbs.InitMask(typ)}, {r.rtrAttr(), verbs.RTRMask(typ)}, {rtsAttr(), verbs.RTSMask(typ)}} {
				calls := r.get("MODIFY_CALLS")
				for bit := range 21 {
					if err := r.qp.Modify(step.attr, step.mask^(1<<bit)); !errors.Is(err, syscall.EINVAL) {
						t.Errorf("to %v with bit %d flipped: %v", step.attr.State, bit, err)
					}
				}
				if r.get("MODIFY_CALLS") != calls {
					t.Errorf("to %v: a wrong mask reached the library", step.attr.State)
				}
				must(t, r.qp.Modify(step.attr, step.mask))
				if got := r.get("MOD_MASK"); got != uint64(step.mask) {
					t.Errorf("to %v: mask %#x, want %#x", step.attr.State, got, step.mask)
				}
				if r.get("MODIFY_CALLS") != calls+1 {
					t.Errorf("to %v: not one call", step.attr.State)
				}
			}
			must(t, r.qp.Modify(&verbs.QPAttr{State: verbs.StateErr}, verbs.AttrState))
			if r.get("MOD_MASK") != 1 || r.get("MOD_STATE") != 6 {
				t.Errorf("to ERR: mask %#x, state %d", r.get("MOD_MASK"), r.get("MOD_STATE"))
			}
			must(t, r.qp.Modify(&verbs.QPAttr{State: verbs.StateReset}, verbs.AttrState))
		})
	}
}

// TestModifyValues: every attribute arrives in its own field.
func TestModifyValues(t *testing.T) {
	r := newRig(t, verbs.RC)
	check := func(want map[string]uint64) {
		t.Helper()
		got := map[string]uint64{}
		for k := range want {
			got[k] = r.get(k)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Error(d)
		}
	}
	attr := initAttr()
	attr.PKeyIndex, attr.AccessFlags = 3, verbs.AccessRemoteWrite|verbs.AccessRemoteRead
	must(t, r.qp.Modify(attr, verbs.InitMask(verbs.RC)))
	check(map[string]uint64{"MOD_STATE": 1, "MOD_PKEY": 3, "MOD_PORT": 1, "MOD_ACCESS": 6})
	attr = r.rtrAttr()
	attr.AV.DLID = 0x1234
	attr.AV.Port = 0 // the QP's own
	must(t, r.qp.Modify(attr, verbs.RTRMask(verbs.RC)))
	check(map[string]uint64{"MOD_STATE": 2, "MOD_MTU": 5, "MOD_DEST": 0x654321, "MOD_RQ_PSN": 0xabcdef, "MOD_DEST_RD": 3,
		"MOD_RNR_TIMER": 12, "AH_GLOBAL": 1, "AH_HOPS": 64, "AH_INDEX": 1, "AH_LID": 0x1234, "AH_PORT": 1, "AH_DGID_LAST": 2})
	must(t, r.qp.Modify(rtsAttr(), verbs.RTSMask(verbs.RC)))
	check(map[string]uint64{"MOD_STATE": 3, "MOD_SQ_PSN": 0x123456, "MOD_TIMEOUT": 14, "MOD_RETRY": 6, "MOD_RNR_RETRY": 5, "MOD_RD": 2})
	got, err := r.qp.Query()
	must(t, err)
	if got.State != verbs.StateRTS || got.SQPSN != 0x123456 || got.Timeout != 14 {
		t.Errorf("query: %+v", got)
	}

	ud := r.newQP(verbs.UD)
	must(t, ud.Modify(initAttr(), verbs.InitMask(verbs.UD)))
	check(map[string]uint64{"MOD_QKEY": 0x11, "MOD_MASK": uint64(verbs.AttrState | verbs.AttrPKeyIndex | verbs.AttrPort | verbs.AttrQKey)})
}

// TestModifyRefused: values beyond the port are EINVAL, say what was found,
// and change nothing.
func TestModifyRefused(t *testing.T) {
	f := newFake(t)
	f.set("PORT_MTU", 3)
	r := f.rig(verbs.RC)
	bad := initAttr()
	bad.Port = 2
	wantError(t, "port", r.qp.Modify(bad, verbs.InitMask(verbs.RC)), syscall.EINVAL, "port 2 of 1")
	must(t, r.qp.Modify(initAttr(), verbs.InitMask(verbs.RC)))
	for _, c := range []struct {
		part   string
		change func(a *verbs.QPAttr)
	}{
		{"active MTU of 1024", func(a *verbs.QPAttr) { a.PathMTU = verbs.MTU2048 }},
		{"GID", func(a *verbs.QPAttr) { a.AV.IsGlobal = false }},
		{"SGID index 300", func(a *verbs.QPAttr) { a.AV.SGIDIndex = 300 }},
		{"SGID index -1", func(a *verbs.QPAttr) { a.AV.SGIDIndex = -1 }},
		{"table of 10", func(a *verbs.QPAttr) { a.AV.SGIDIndex = 10 }},
		{"names port 3", func(a *verbs.QPAttr) { a.AV.Port = 3 }},
		{"service level", func(a *verbs.QPAttr) { a.AV.SL = 16 }},
		{"flow label", func(a *verbs.QPAttr) { a.AV.FlowLabel = 1 << 20 }},
		{"QPN", func(a *verbs.QPAttr) { a.DestQPN = 1 << 24 }},
	} {
		attr := r.rtrAttr()
		attr.PathMTU = verbs.MTU1024
		c.change(attr)
		calls := r.get("MODIFY_CALLS")
		wantError(t, c.part, r.qp.Modify(attr, verbs.RTRMask(verbs.RC)), syscall.EINVAL, c.part)
		if r.get("MODIFY_CALLS") != calls {
			t.Errorf("%s: it reached the library", c.part)
		}
	}
	attr := r.rtrAttr()
	attr.PathMTU = verbs.MTU1024
	must(t, r.qp.Modify(attr, verbs.RTRMask(verbs.RC)))
}

// TestLIDRouting: on InfiniBand an address without a GID is fine, unless the
// port demands the GRH.
func TestLIDRouting(t *testing.T) {
	for _, flags := range []uint64{0, 1} {
		f := newFake(t)
		f.set("LINK_LAYER", 1)
		f.set("PORT_LID", 9)
		f.set("PORT_FLAGS", flags)
		r := f.rig(verbs.RC)
		must(t, r.qp.Modify(initAttr(), verbs.InitMask(verbs.RC)))
		attr := r.rtrAttr()
		attr.AV = verbs.AHAttr{DLID: 17, Port: 1}
		err := r.qp.Modify(attr, verbs.RTRMask(verbs.RC))
		if flags != 0 {
			wantError(t, "GRH required", err, syscall.EINVAL, "GID")
			continue
		}
		must(t, err)
		if f.get("AH_LID") != 17 || f.get("AH_GLOBAL") != 0 {
			t.Errorf("LID %d, global %d", f.get("AH_LID"), f.get("AH_GLOBAL"))
		}
	}
}

// TestRoute: a wrong GID shows as a timeout or a missing route of the RTR
// transition; the message names both ends.
func TestRoute(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.ETIMEDOUT, syscall.ENETUNREACH, syscall.EHOSTUNREACH} {
		r := newRig(t, verbs.RC)
		must(t, r.qp.Modify(initAttr(), verbs.InitMask(verbs.RC)))
		r.set("MODIFY_ERRNO", uint64(errno))
		err := r.qp.Modify(r.rtrAttr(), verbs.RTRMask(verbs.RC))
		for _, part := range []string{"INIT to RTR", "fake0", "SGID index 1", "10.0.0.1", "10.0.0.2", "RoCE v2", "eth7"} {
			wantError(t, "RTR", err, errno, part)
		}
		r.set("MODIFY_ERRNO", 0)
		must(t, r.qp.Modify(r.rtrAttr(), verbs.RTRMask(verbs.RC))) // nothing had changed
	}
}

// TestFailedByItself: a QP that the device moved to ERR says so when the next
// transition is refused, and takes no receives from the next Query on.
func TestFailedByItself(t *testing.T) {
	r := newRig(t, verbs.RC)
	must(t, r.qp.Modify(initAttr(), verbs.InitMask(verbs.RC)))
	must(t, r.qp.Modify(r.rtrAttr(), verbs.RTRMask(verbs.RC)))
	r.set("QP_FAILED", 1)
	r.set("MODIFY_ERRNO", uint64(syscall.EINVAL))
	wantError(t, "RTS", r.qp.Modify(rtsAttr(), verbs.RTSMask(verbs.RC)), syscall.EINVAL, "is in ERR by now")
	r.set("MODIFY_ERRNO", 0)
	if a, err := r.qp.Query(); err != nil || a.State != verbs.StateErr {
		t.Errorf("query: %v, %v", a.State, err)
	}
	if n, err := r.qp.PostRecv(make([]verbs.RecvWR, 1)); n != 0 || !errors.Is(err, syscall.EINVAL) {
		t.Errorf("post a receive in ERR: %d, %v", n, err)
	}
	r.set("QUERY_ERRNO", uint64(syscall.EIO))
	if _, err := r.qp.Query(); !errors.Is(err, syscall.EIO) {
		t.Errorf("query: %v", err)
	}
}

// TestCap: a driver that answers with what was asked for and has more is
// asked again.
func TestCap(t *testing.T) {
	f := newFake(t)
	f.set("ROUND_UP", 27)
	r := f.rig(verbs.RC)
	if c := r.qp.Cap(); c != (verbs.QPCap{MaxSendWR: 127, MaxRecvWR: 127, MaxSendSGE: 4, MaxRecvSGE: 4, MaxInlineBytes: 64}) {
		t.Errorf("capacity %+v", c)
	}
	r.connect(r.qp)
	r.set("HOLD", 1)
	n, err := r.qp.PostSend(sends(130))
	if n != 127 || !errors.Is(err, syscall.ENOMEM) || !strings.Contains(err.Error(), "full") {
		t.Errorf("%d accepted by a queue of 127, %v", n, err)
	}
}

// TestQPBelongs: an object knows what it belongs to.
func TestQPBelongs(t *testing.T) {
	r := newRig(t, verbs.UC)
	if r.qp.PD() != r.pd || r.pd.Context() != verbs.Context(r.dev) || r.qp.Type() != verbs.UC || r.qp.QPN() != 0x101 ||
		r.qp.ConnData() != nil || r.cq.Entries() != 256 {
		t.Error("an object does not know what it belongs to")
	}
}
