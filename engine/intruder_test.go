package engine

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"mover/buffer"
	"mover/reason"
	"mover/verbs"
)

// intruder is a queue pair of a peer that does not keep to what it was granted:
// driven by hand, connected to one of the receiving session's own, with
// whatever rkey the session told its peer. Around it the session is a real one
// with real goroutines, and its memory a lease of a real buffer.
type intruder struct {
	t       *testing.T
	a, b    *softNode // the peer that the intruder belongs to, and the receiver
	pd      verbs.PD
	cq      verbs.CQ
	qp      verbs.QP
	mr      verbs.MR
	memory  []byte
	posted  uint64
	region  chan MemoryRegion // where the item is
	theirs  chan LaneEnd      // the receiver's end of the lane
	buffers *buffer.Registry
	lease   *buffer.Lease
	file    string
	item    *softItem

	mu   sync.Mutex
	held []Message // grants that the honest part of the peer does not get yet
	open bool      // it gets them
	took bool      // the lane is the intruder's
	told bool      // so is the answer to it

	rebuilt chan struct{} // closed when the receiver has another QP for the lane
	once    sync.Once
}

const (
	intruderLane  = 0
	intruderPages = 9
	leasedFrom    = 3 // pages
	leasedPages   = 2
)

func page() int64 { return int64(os.Getpagesize()) }

// newIntruder starts the two nodes, connects the QP in the place of lane 0, and
// has an item open at b whose source does not send.
func newIntruder(t *testing.T) *intruder {
	in := &intruder{t: t, region: make(chan MemoryRegion, 1), theirs: make(chan LaneEnd, 1), rebuilt: make(chan struct{})}
	in.a = newSoftNode(t, true, []netip.Addr{netip.MustParseAddr("127.0.0.1")}, 1)
	in.b = newSoftNode(t, false, []netip.Addr{netip.MustParseAddr("127.0.0.2")}, 1)
	in.a.peer, in.b.peer = in.b, in.a
	in.leaseRange()
	in.makeQP()
	in.a.tamper, in.b.tamper = in.toReceiver, in.toPeer
	in.item = in.a.newItem(0, Direct, leasedPages*page())
	in.item.place = in.pages
	released := make(chan struct{})
	in.item.release = func() {
		in.lease.Release()
		close(released)
	}
	in.a.run()
	in.b.run()
	waitFor(t, "up", in.a.up)
	in.connect(waitFor(t, "the receiver's end of the lane", in.theirs))
	in.a.session.Send(&in.item.item)
	t.Cleanup(func() {
		in.destroy()
		for _, n := range []*softNode{in.a, in.b} {
			n.session.Close(nil)
			waitFor(t, "end", n.ended)
			n.shut()
		}
		waitFor(t, "the lease's end", released)
		if err := in.buffers.Delete(context.Background(), "w"); err != nil {
			t.Error(err)
			os.Remove(in.file)
		}
		if err := in.buffers.Close(); err != nil {
			t.Error(err)
		}
	})
	return in
}

// leaseRange makes a buffer full of a pattern, and leases pages in its middle.
func (in *intruder) leaseRange() {
	var err error
	if in.buffers, _, err = buffer.Open(in.t.Context(), buffer.Config{Dir: in.t.TempDir(), Node: fmt.Sprintf("intruder-%d", os.Getpid())}); err != nil {
		in.t.Fatal(err)
	}
	info, _, err := in.buffers.Create(in.t.Context(), buffer.Spec{Name: "w", Bytes: intruderPages * page(), PageSize: buffer.PageBase, NUMANode: buffer.AnyNode})
	if err != nil {
		in.t.Fatal(err)
	}
	in.file = info.Path
	if err := os.WriteFile(in.file, bytes.Repeat([]byte("unharmed"), int(intruderPages*page()/8)), 0o600); err != nil {
		in.t.Fatal(err)
	}
	if in.lease, err = in.buffers.Lease(buffer.LeaseRequest{Name: "w", Offset: leasedFrom * page(), Length: leasedPages * page(), Exclusive: true, Holder: in.t.Name()}); err != nil {
		in.t.Fatal(err)
	}
}

func (in *intruder) pages() []byte {
	memory, err := in.lease.Pages()
	if err != nil {
		in.t.Error(err)
	}
	return memory
}

// content is what an application that maps the buffer sees.
func (in *intruder) content() []byte {
	in.t.Helper()
	text, err := os.ReadFile(in.file)
	if err != nil {
		in.t.Fatal(err)
	}
	return text
}

func (in *intruder) makeQP() {
	in.t.Helper()
	ctx := in.a.ctxs[0]
	must := func(err error) {
		in.t.Helper()
		if err != nil {
			in.t.Fatal(err)
		}
	}
	var err error
	in.pd, err = ctx.AllocPD()
	must(err)
	in.cq, err = ctx.CreateCQ(verbs.CQInitAttr{Entries: 16})
	must(err)
	in.qp, err = in.pd.CreateQP(verbs.QPInitAttr{Type: verbs.RC, SendCQ: in.cq, RecvCQ: in.cq,
		Cap: verbs.QPCap{MaxSendWR: 8, MaxRecvWR: 8, MaxSendSGE: 1, MaxRecvSGE: 1}})
	must(err)
	in.memory = mapped(in.t, intruderPages*page())
	for i := range in.memory {
		in.memory[i] = 0xbd
	}
	in.mr, err = in.pd.RegMR(in.memory, 0)
	must(err)
	must(in.qp.Modify(&verbs.QPAttr{State: verbs.StateInit, Port: 1}, verbs.InitMask(verbs.RC)))
}

// toReceiver puts the intruder's end in the place of its peer's.
func (in *intruder) toReceiver(m Message) Message {
	open, is := m.(*LaneOpen)
	in.mu.Lock()
	defer in.mu.Unlock()
	if !is || in.took {
		return m
	}
	changed := &LaneOpen{Lanes: append([]LaneEnd(nil), open.Lanes...)}
	for i := range changed.Lanes {
		if end := &changed.Lanes[i]; end.Lane == intruderLane {
			end.QPN, end.PSN, end.ConnData = in.qp.QPN(), 7, in.qp.ConnData()
			in.took = true
		}
	}
	return changed
}

// toPeer learns what the receiver tells, and holds its grants back.
func (in *intruder) toPeer(m Message) Message {
	in.mu.Lock()
	defer in.mu.Unlock()
	switch m := m.(type) {
	case *LaneOpened:
		kept := &LaneOpened{}
		for _, end := range m.Lanes {
			if end.Lane == intruderLane && !in.told {
				in.told = true
				in.theirs <- end
				continue
			}
			if end.Lane == intruderLane {
				in.once.Do(func() { close(in.rebuilt) })
			}
			kept.Lanes = append(kept.Lanes, end)
		}
		if len(kept.Lanes) == 0 {
			return nil
		}
		return kept
	case *ItemAnswer:
		if len(m.Regions) == 1 {
			in.region <- m.Regions[0]
		}
	case *SegmentGrants:
		if !in.open {
			in.held = append(in.held, m)
			return nil
		}
	}
	return m
}

// letGo gives the honest part of the peer its grants.
func (in *intruder) letGo() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.open = true
	for _, m := range in.held {
		in.a.messages[1] <- m
	}
	in.held = nil
	in.a.bell.Wake()
}

func (in *intruder) connect(end LaneEnd) {
	in.t.Helper()
	rtr := &verbs.QPAttr{State: verbs.StateRTR, PathMTU: verbs.MTU4096, DestQPN: end.QPN, RQPSN: end.PSN, MaxDestRdAtomic: 1, MinRNRTimer: 12,
		AV: verbs.AHAttr{Port: 1, IsGlobal: true, DGID: end.GID, HopLimit: 64}, RemoteConnData: end.ConnData}
	if err := in.qp.Modify(rtr, verbs.RTRMask(verbs.RC)); err != nil {
		in.t.Fatal(err)
	}
	rts := &verbs.QPAttr{State: verbs.StateRTS, SQPSN: 7, Timeout: 14, RetryCnt: 7, RNRRetry: 7, MaxRdAtomic: 1}
	if err := in.qp.Modify(rts, verbs.RTSMask(verbs.RC)); err != nil {
		in.t.Fatal(err)
	}
}

// write does an RDMA Write to an address of the receiver, and returns how it
// completed.
func (in *intruder) write(addr uint64, rkey uint32, n int64) verbs.WCStatus {
	in.t.Helper()
	in.posted++
	wr := [1]verbs.SendWR{{WRID: in.posted, Op: verbs.OpWrite, Flags: verbs.SendSignaled, RemoteAddr: addr, RKey: rkey,
		SGL: []verbs.SGE{{Addr: in.mr.Addr(), Length: uint32(n), LKey: in.mr.LKey()}}}}
	if _, err := in.qp.PostSend(wr[:]); err != nil {
		in.t.Fatal(err)
	}
	var wcs [1]verbs.WC
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Microsecond) {
		n, err := in.cq.Poll(wcs[:])
		if err != nil {
			in.t.Fatal(err)
		}
		if n == 1 && wcs[0].WRID == in.posted {
			return wcs[0].Status
		}
	}
	in.t.Fatal("a write does not complete")
	return 0
}

// noticed takes the event that the access error is at the receiver to its
// session, as the node's reader of events does, and waits for the session's end.
func (in *intruder) noticed() {
	in.t.Helper()
	for {
		e, err := in.b.ctxs[0].GetAsyncEvent(30 * time.Second)
		if err != nil {
			in.t.Fatalf("no event of the access error: %v", err)
		}
		in.b.session.PortEvent(in.b.ctxs[0], e)
		if e.Type == verbs.EventQPAccessErr {
			break
		}
	}
	why := waitFor(in.t, "the session's end", in.b.ended)
	if why == nil || why.Code != reason.TransportError || !strings.Contains(why.Detail, "access error on lane 0") {
		in.t.Errorf("the session ends with %v", why)
	}
	in.b.ended <- why
}

func (in *intruder) destroy() {
	for _, err := range []error{in.qp.Destroy(), in.mr.Dereg(), in.cq.Destroy(), in.pd.Dealloc()} {
		if err != nil {
			in.t.Error(err)
		}
	}
}

// TestIntruderBesideTheLease: no byte beside the leased range changes, whichever
// way a write reaches out of it.
func TestIntruderBesideTheLease(t *testing.T) {
	size := leasedPages * page()
	for _, c := range []struct {
		name       string
		from, size int64 // from is relative to the range
	}{
		{"the byte before", -1, 1},
		{"the byte after", size, 1},
		{"over the beginning", -8, 16},
		{"over the end", size - 8, 16},
		{"all of it and more", -leasedFrom * page(), intruderPages * page()},
		{"the buffer's first byte", -leasedFrom * page(), 1},
		{"far away", 1 << 40, 8},
		{"below zero", -1 << 62, 8},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := newIntruder(t)
			r := waitFor(t, "the item's region", in.region)
			if r.Bytes != size {
				t.Errorf("the rkey covers %d bytes, leased are %d", r.Bytes, size)
			}
			before := in.content()
			if got := in.write(r.Addr+uint64(c.from), r.RKey, c.size); got != verbs.WCRemAccessErr {
				t.Errorf("the write completes with %v", got)
			}
			in.noticed()
			if r := waitFor(t, "the item", in.item.done); r.Err == nil || !r.Err.Code.Retryable() {
				t.Errorf("the item ends with %v", r.Err)
			}
			if !bytes.Equal(in.content(), before) {
				t.Error("bytes changed")
			}
		})
	}
}

// TestIntruderIsFoundOutLate: the receiver hears of an access error by a way of
// its own, and it ends the session also when the lane has another QP by then.
func TestIntruderIsFoundOutLate(t *testing.T) {
	in := newIntruder(t)
	r := waitFor(t, "the item's region", in.region)
	if got := in.write(r.Addr-1, r.RKey, 1); got != verbs.WCRemAccessErr {
		t.Errorf("the write completes with %v", got)
	}
	waitFor(t, "the lane's next life", in.rebuilt)
	in.noticed()
}

// TestIntruderAfterTheLease: a write within the range is the peer's right while
// the item is open, and no byte changes once it is published or was canceled,
// also when the range is somebody else's by then.
func TestIntruderAfterTheLease(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(in *intruder) *reason.Error // the item's
	}{
		{"published", func(in *intruder) *reason.Error {
			in.letGo()
			return waitFor(in.t, "the item", in.item.done).Err
		}},
		{"canceled", func(in *intruder) *reason.Error {
			in.a.session.Cancel(&in.item.item, reason.New(reason.Canceled, "enough"))
			if r := waitFor(in.t, "the item", in.item.done); r.Err == nil || r.Err.Code != reason.Canceled {
				in.t.Errorf("the item ends with %v", r.Err)
			}
			return nil
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := newIntruder(t)
			r := waitFor(t, "the item's region", in.region)
			if got := in.write(r.Addr+8, r.RKey, 16); got != verbs.WCSuccess {
				t.Fatalf("a write within the open range completes with %v", got)
			}
			at := leasedFrom*page() + 8
			if got := in.content()[at : at+16]; !bytes.Equal(got, in.memory[:16]) {
				t.Errorf("the range has %x", got)
			}
			if err := c.end(in); err != nil {
				t.Fatal(err)
			}
			// The next one who has the range.
			next := in.leaseAgain()
			defer next.Release()
			before := in.content()
			if c.name == "published" && !bytes.Equal(before[leasedFrom*page():][:len(in.item.data)], in.item.data) {
				t.Error("what was published is not what was sent")
			}
			if got := in.write(r.Addr+8, r.RKey, 16); got != verbs.WCRemAccessErr {
				t.Errorf("a write after the end completes with %v", got)
			}
			in.noticed()
			if !bytes.Equal(in.content(), before) {
				t.Error("bytes changed")
			}
		})
	}
}

// leaseAgain leases the range as soon as it is free: the destination lets go of
// a canceled item when it has read of that.
func (in *intruder) leaseAgain() *buffer.Lease {
	in.t.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		l, err := in.buffers.Lease(buffer.LeaseRequest{Name: "w", Offset: leasedFrom * page(), Length: leasedPages * page(), Exclusive: true, Holder: "the next"})
		if err == nil {
			return l
		}
		if time.Now().After(end) {
			in.t.Fatal(err)
		}
	}
}
