//go:build linux && cgo

package ibv

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"mover/verbs"
)

// TestChurn opens and tears down QPs on real devices, as lanes do: INIT, RTR,
// RTS, something outstanding, ERR, drain, destroy. Nothing may grow: neither
// our counts, nor the kernel's (rdma-resource(8)), descriptors or memory.
func TestChurn(t *testing.T) {
	p, names := realDevices(t)
	a, b := newEnd(t, p, names[0]), newEnd(t, p, names[1])
	total := churnCount(t)
	warmUp := min(20, total)
	for range warmUp { // what is allocated once
		churn(t, a, b)
	}
	before := usage(t, a.ctx.Device().Name)
	for range total {
		churn(t, a, b)
	}
	after := usage(t, a.ctx.Device().Name)
	t.Logf("before %+v, after %d QP pairs %+v", before, total, after)
	for _, e := range []*end{a, b} {
		if c := e.ctx.Counts(); c != (verbs.Counts{PD: 1, MR: 1, CQ: 1}) {
			t.Errorf("counts %+v", c)
		}
	}
	if after.files > before.files {
		t.Errorf("descriptors: %d, then %d", before.files, after.files)
	}
	if after.kernel != before.kernel {
		t.Errorf("the kernel's resources: %q, then %q", before.kernel, after.kernel)
	}
	// A leak of a QP is at least its rings and arrays, several pages a QP. What
	// the runtime itself may take meanwhile is far below a page a QP.
	if grown := after.rssBytes - before.rssBytes; grown > int64(8<<20)+int64(total)*2048 {
		t.Errorf("resident memory grew by %d KiB over %d QP pairs", grown>>10, total)
	}
}

// end is one side of the churn.
type end struct {
	t    *testing.T
	ctx  verbs.Context
	pd   verbs.PD
	mr   verbs.MR
	cq   verbs.CQ
	gid  verbs.GIDEntry
	port verbs.PortAttr
}

func newEnd(t *testing.T, p *Provider, name string) *end {
	t.Helper()
	e := &end{t: t, ctx: open(t, p, name)}
	t.Cleanup(func() { must(t, e.ctx.Close()) })
	var err error
	e.pd, err = e.ctx.AllocPD()
	must(t, err)
	t.Cleanup(func() { must(t, e.pd.Dealloc()) })
	e.mr, err = e.pd.RegMR(pages(t, 1), verbs.AccessLocalWrite|verbs.AccessRemoteWrite)
	must(t, err)
	t.Cleanup(func() { must(t, e.mr.Dereg()) })
	e.cq, err = e.ctx.CreateCQ(verbs.CQInitAttr{Entries: 128})
	must(t, err)
	t.Cleanup(func() { must(t, e.cq.Destroy()) })
	e.port, err = e.ctx.QueryPort(1)
	must(t, err)
	table, err := e.ctx.QueryGIDTable(1)
	must(t, err)
	e.gid, err = verbs.ChooseGID(table, verbs.GIDWish{})
	must(t, err)
	return e
}

func (e *end) newQP() verbs.QP {
	e.t.Helper()
	qp, err := e.pd.CreateQP(verbs.QPInitAttr{Type: verbs.RC, SendCQ: e.cq, RecvCQ: e.cq,
		Cap: verbs.QPCap{MaxSendWR: 16, MaxRecvWR: 16, MaxSendSGE: 1, MaxRecvSGE: 1}})
	must(e.t, err)
	return qp
}

func (e *end) connect(qp, peerQP verbs.QP, peer *end) {
	e.t.Helper()
	must(e.t, qp.Modify(&verbs.QPAttr{State: verbs.StateInit, Port: 1, AccessFlags: verbs.AccessRemoteWrite}, verbs.InitMask(verbs.RC)))
	must(e.t, qp.Modify(&verbs.QPAttr{State: verbs.StateRTR, PathMTU: min(e.port.ActiveMTU, peer.port.ActiveMTU), DestQPN: peerQP.QPN(),
		MinRNRTimer: 12, AV: verbs.AHAttr{IsGlobal: true, DGID: peer.gid.GID, SGIDIndex: e.gid.Index, HopLimit: 64, Port: 1, DLID: peer.port.LID}},
		verbs.RTRMask(verbs.RC)))
}

// churn is the life of one pair of QPs. A write goes through; receives and a
// send stay outstanding and are drained.
func churn(t *testing.T, a, b *end) {
	t.Helper()
	qa, qb := a.newQP(), b.newQP()
	a.connect(qa, qb, b)
	b.connect(qb, qa, a)
	for _, qp := range []verbs.QP{qa, qb} {
		must(t, qp.Modify(&verbs.QPAttr{State: verbs.StateRTS, Timeout: 16, RetryCnt: 6, RNRRetry: 6}, verbs.RTSMask(verbs.RC)))
	}
	recvs := make([]verbs.RecvWR, 5)
	if n, err := qa.PostRecv(recvs); n != len(recvs) || err != nil {
		t.Fatalf("post receives: %d, %v", n, err)
	}
	write := verbs.SendWR{WRID: 1, Op: verbs.OpWrite, Flags: verbs.SendSignaled, RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey(),
		SGL: []verbs.SGE{{Addr: a.mr.Addr(), Length: 64, LKey: a.mr.LKey()}}}
	post(t, qa, []verbs.SendWR{write})
	if wc := a.wait(1)[0]; wc.Status != verbs.WCSuccess {
		t.Fatalf("write: %v", wc.Status)
	}
	post(t, qa, []verbs.SendWR{{WRID: 2, Op: verbs.OpSend, Flags: verbs.SendSignaled}}) // B has no receive
	for _, qp := range []verbs.QP{qa, qb} {
		must(t, qp.Modify(&verbs.QPAttr{State: verbs.StateErr}, verbs.AttrState))
	}
	for _, wc := range a.wait(len(recvs) + 1) {
		if wc.Status != verbs.WCFlushErr {
			t.Fatalf("drain: %+v", wc)
		}
	}
	must(t, qa.Destroy())
	must(t, qb.Destroy())
}

// wait polls n completions; the deadline only bounds a failure.
func (e *end) wait(n int) []verbs.WC {
	e.t.Helper()
	wcs := make([]verbs.WC, n)
	got := 0
	for deadline := time.Now().Add(time.Minute); got < n; {
		k, err := e.cq.Poll(wcs[got:])
		must(e.t, err)
		got += k
		if k == 0 && time.Now().After(deadline) {
			e.t.Fatalf("%d completions of %d", got, n)
		}
	}
	return wcs
}

// resources is what must not grow.
type resources struct {
	files    int
	rssBytes int64
	kernel   string // rdma-resource(8) of the device, without what ends late; "" without the tool
}

func usage(t *testing.T, device string) resources {
	t.Helper()
	runtime.GC()
	entries, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	statm, err := os.ReadFile("/proc/self/statm")
	must(t, err)
	pages, err := strconv.ParseInt(strings.Fields(string(statm))[1], 10, 64)
	must(t, err)
	r := resources{files: len(entries), rssBytes: pages * int64(os.Getpagesize())}
	// Only root sees them all, and the tool may be missing: then the counts
	// of the provider have to do.
	if out, err := exec.Command("rdma", "resource", "show", device).Output(); err == nil {
		r.kernel = kernelCounts(string(out))
	}
	return r
}

var countPattern = regexp.MustCompile(`\b(pd|cq|qp|cm_id|mr) (\d+)`)

// kernelCounts takes the counts out of "0: rxe0: pd 1 cq 1 qp 1 cm_id 0 mr 0
// ctx 0 srq 0".
func kernelCounts(line string) string {
	var parts []string
	for _, m := range countPattern.FindAllStringSubmatch(line, -1) {
		parts = append(parts, m[1]+" "+m[2])
	}
	return strings.Join(parts, ", ")
}

func TestKernelCounts(t *testing.T) {
	if got := fmt.Sprint(kernelCounts("0: rxe0: pd 1 cq 12 qp 3 cm_id 0 mr 4 ctx 1 srq 0\n")); got != "pd 1, cq 12, qp 3, cm_id 0, mr 4" {
		t.Errorf("%q", got)
	}
}
