package fabric

import (
	"errors"
	"fmt"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"mover/numa"
	"mover/verbs"
)

const (
	// pollBatch is how many completions one poll takes.
	pollBatch = 64
	// spinBefore is how long an adaptive poller polls before it waits.
	spinBefore = 50 * time.Microsecond
	// waitMost bounds a wait for events, so that a poller sees the end of the
	// conversation though nothing completes.
	waitMost = 20 * time.Millisecond
	// emptyPolls is how many polls without a completion make a look at the
	// clock worth its cost, which is a system call where the kernel does not
	// trust the processor's counter.
	emptyPolls = 1024
)

// ErrStalled is matched by a *StallError.
var ErrStalled = errors.New("no progress")

// StallError: nothing completed for too long.
type StallError struct {
	Doing  string
	For    time.Duration
	Remedy string
}

func (e *StallError) Error() string {
	return fmt.Sprintf("no completion for %v while %s; %s", e.For, e.Doing, e.Remedy)
}

// Is matches ErrStalled.
func (e *StallError) Is(target error) bool { return target == ErrStalled }

// CompletionError is a work request that failed: the first of its QP, and so
// the cause of the flushes that follow. A flush without a cause means that the
// other side has closed.
type CompletionError struct {
	QP        int // among the run's QPs
	Status    verbs.WCStatus
	VendorErr uint32
	Receive   bool
	Emulated  bool // by the kernel's Soft-RoCE
}

func (e *CompletionError) Error() string {
	what, then := "a message", "check that the other side still runs and that both GIDs can reach each other (`mover devices`, ping)"
	if e.Receive {
		what = "a receive"
	}
	switch {
	case e.Status == verbs.WCRetryExcErr:
		then += ", or raise -u"
	case e.Status == verbs.WCRemInvReqErr && e.Emulated:
		// After retransmissions, as its answer to a request that it has had.
		then = "Soft-RoCE's driver does this when acknowledgements are late: raise -u on both sides"
	case e.Status.Blame() == verbs.BlameLocal || e.Status.Blame() == verbs.BlameRemote:
		then = "that is a bug of the driver or of mover: please report it"
	}
	return fmt.Sprintf("%s on QP %d ended with %v (vendor error %#x); %s", what, e.QP, e.Status, e.VendorErr, then)
}

// poller owns one CQ and the lanes that complete there. It runs on a thread of
// its own.
type poller struct {
	cpu      int // -1: any
	emulated bool
	spin     time.Duration
	stall    time.Duration
	talk     *talk

	cq      verbs.CQ
	channel verbs.CompChannel // nil: spin
	fds     [1]unix.PollFd
	lanes   []*lane
	wcs     []verbs.WC
	base    time.Time

	armed   bool
	empty   int   // polls without a completion in a row
	idleAt  int64 // about when the first of them was, 0: not looked at yet
	began   int64
	ended   int64
	history peak
}

// onThread runs f on a new thread of its own, pinned to the poller's CPU.
func (p *poller) onThread(f func() error) <-chan error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread goes with the goroutine
		if p.cpu >= 0 {
			if err := numa.PinThread(numa.CPUSetOf(p.cpu)); err != nil {
				result <- fmt.Errorf("%w; choose other CPUs with --cpus", err)
				return
			}
		}
		p.empty, p.idleAt, p.armed = 0, 0, false
		result <- f()
	}()
	return result
}

// now is a monotonic time in nanoseconds.
func (p *poller) now() int64 { return int64(time.Since(p.base)) }

// poll handles what has completed and returns how much. When nothing has it
// waits, as the poller's way of being idle is, and fails when that has gone on
// for too long; doing names what is then stuck, and is "" where the other side
// sets the pace.
func (p *poller) poll(doing string) (int, error) {
	n, err := p.cq.Poll(p.wcs)
	for i := range p.wcs[:n] {
		if e := p.handle(&p.wcs[i]); e != nil {
			for j := i; j < n; j++ { // draining counts them
				p.countFlushed(&p.wcs[j])
			}
			return n, e
		}
	}
	if err != nil {
		return n, fmt.Errorf("polling while %s: %w", doing, err)
	}
	if n > 0 {
		p.empty, p.idleAt, p.armed = 0, 0, false
		return n, nil
	}
	return 0, p.idle(doing)
}

func (p *poller) handle(wc *verbs.WC) error {
	index := int(wc.WRID >> 32 & (1<<31 - 1))
	if index >= len(p.lanes) {
		return fmt.Errorf("a completion has wr_id %#x, which nobody posted", wc.WRID)
	}
	n, receive := p.lanes[index], wc.WRID&recvBit != 0
	switch {
	case wc.Status != verbs.WCSuccess:
		return &CompletionError{QP: n.number, Status: wc.Status, VendorErr: wc.VendorErr, Receive: receive, Emulated: p.emulated}
	case receive && n.rx != nil && int(uint32(wc.WRID)) != n.rx.next:
		return fmt.Errorf("receive %d of QP %d completed where %d was due", uint32(wc.WRID), n.number, n.rx.next)
	case receive && n.rx != nil:
		n.rx.take(wc)
		return nil
	case !receive && n.tx != nil:
		return n.tx.complete(uint32(wc.WRID))
	}
	return fmt.Errorf("a completion has wr_id %#x, which nobody posted", wc.WRID)
}

// idle is called after each empty poll. No event is lost: the CQ is armed,
// then polled once more, and only then waited for (ibv_req_notify_cq(3)).
func (p *poller) idle(doing string) error {
	p.empty++
	if p.channel == nil && p.empty%emptyPolls != 0 {
		return nil
	}
	now := p.now()
	if p.idleAt == 0 {
		p.idleAt = now
	}
	if idle := time.Duration(now - p.idleAt); doing != "" && idle > p.stall {
		return &StallError{Doing: doing, For: p.stall, Remedy: "the path is cut, or the other side's poller does not run"}
	}
	switch {
	case p.channel == nil || time.Duration(now-p.idleAt) < p.spin:
		return nil
	case !p.armed:
		p.armed = true
		return p.cq.ReqNotify(false)
	}
	p.armed = false
	if _, err := unix.Poll(p.fds[:], int(waitMost/time.Millisecond)); err != nil && err != unix.EINTR {
		return fmt.Errorf("waiting for a completion event: %w", err)
	}
	return p.channel.Drain()
}
