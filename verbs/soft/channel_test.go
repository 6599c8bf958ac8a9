//go:build linux

package soft

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"mover/verbs"
)

// parkedPoll is a poller that always parks: arm, poll, and only then wait.
func (s *side) parkedPoll(wcs []verbs.WC) (int, error) {
	for {
		if n, err := s.cq.Poll(wcs); n > 0 || err != nil {
			return n, err
		}
		if err := s.cq.ReqNotify(false); err != nil {
			return 0, err
		}
		if n, err := s.cq.Poll(wcs); n > 0 || err != nil {
			return n, err
		}
		fds := []unix.PollFd{{Fd: int32(s.ch.FD()), Events: unix.POLLIN}}
		for {
			n, err := unix.Poll(fds, int(patience.Milliseconds()))
			if err == unix.EINTR {
				continue
			}
			if n == 0 || err != nil {
				return 0, fmt.Errorf("not woken: %d, %v", n, err)
			}
			break
		}
		if err := s.ch.Drain(); err != nil {
			return 0, err
		}
	}
}

// TestParking: two pollers that park whenever they find nothing play ping-pong
// with messages small and large. A lost wake-up stops them both.
func TestParking(t *testing.T) {
	const rounds = 300
	a, b := pair(t, sideOptions{channel: true, memBytes: 4 << 20}, sideOptions{channel: true, memBytes: 4 << 20}, usual)
	play := func(s, to *side, first bool) error {
		var wcs [4]verbs.WC
		// credit: receives are posted before the peer may send
		if _, err := s.qp.PostRecv([]verbs.RecvWR{{}, {}}); err != nil {
			return err
		}
		wr := []verbs.SendWR{s.write(1, to, 0, 1)}
		wr[0].Op = verbs.OpWriteWithImm
		sent, got := 0, 0
		for got < rounds || sent < rounds {
			if sent < rounds && (first && sent == got || !first && sent < got) {
				wr[0].SGL[0].Length = []uint32{1, 100_000, 4 << 20}[sent%3]
				if _, err := s.qp.PostSend(wr); err != nil {
					return err
				}
				sent++
			}
			n, err := s.parkedPoll(wcs[:])
			if err != nil {
				return fmt.Errorf("sent %d, got %d: %w", sent, got, err)
			}
			for _, wc := range wcs[:n] {
				if wc.Status != verbs.WCSuccess {
					return fmt.Errorf("%+v", wc)
				}
				if wc.Opcode == verbs.WCRecvRDMAWithIm {
					got++
					if _, err := s.qp.PostRecv([]verbs.RecvWR{{}}); err != nil {
						return err
					}
				}
			}
		}
		// The last completion of the own send wakes the peer, not this side.
		return nil
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := play(a, b, true); err != nil {
			t.Errorf("first: %v", err)
		}
	})
	wg.Go(func() {
		if err := play(b, a, false); err != nil {
			t.Errorf("second: %v", err)
		}
	})
	wg.Wait()
}

// TestParkedDeadline: a parked responder wakes up for its RNR deadline.
func TestParkedDeadline(t *testing.T) {
	o := usual
	o.rnr = 1
	a, b := pair(t, sideOptions{channel: true}, sideOptions{channel: true}, o)
	wr := a.write(1, b, 0, 64)
	wr.Op = verbs.OpWriteWithImm
	a.send(wr)
	done := make(chan error, 1)
	go func() {
		var wcs [1]verbs.WC
		for { // ends when the QP's failure is announced
			if err := b.cq.ReqNotify(false); err != nil {
				done <- err
				return
			}
			if _, err := b.cq.Poll(wcs[:]); err != nil {
				done <- err
				return
			}
			if a, _ := b.qp.Query(); a.State == verbs.StateErr {
				done <- nil
				return
			}
			fds := []unix.PollFd{{Fd: int32(b.ch.FD()), Events: unix.POLLIN}}
			if n, err := unix.Poll(fds, int(patience.Milliseconds())); n == 0 || err != nil && err != unix.EINTR {
				done <- errors.New("not woken")
				return
			}
			b.ch.Drain()
		}
	}()
	if wc := a.take(1)[0]; wc.Status != verbs.WCRNRRetryExcErr {
		t.Errorf("%+v", wc)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestFlushIsAnnounced: completions that no Poll makes wake a parked poller.
func TestFlushIsAnnounced(t *testing.T) {
	a, b := pair(t, sideOptions{channel: true}, sideOptions{}, usual)
	a.send(a.write(1, b, 0, 64))
	a.take(1, b)
	a.recv(verbs.RecvWR{WRID: 2})
	fds := []unix.PollFd{{Fd: int32(a.ch.FD()), Events: unix.POLLIN}}
	ready := func() bool {
		n, err := unix.Poll(fds, 0)
		return err == nil && n == 1
	}
	drive(t, "an armed queue with nothing to do", func() bool {
		a.check(a.ch.Drain())
		if ready() {
			t.Fatal("readable right after Drain")
		}
		a.check(a.cq.ReqNotify(false))
		a.settle()
		return !ready()
	}, a, b)
	if err := a.qp.Modify(&verbs.QPAttr{State: verbs.StateErr}, verbs.AttrState); err != nil {
		t.Fatal(err)
	}
	if !ready() {
		t.Errorf("the flush is not announced")
	}
	if wc := a.take(1)[0]; wc.Status != verbs.WCFlushErr || wc.WRID != 2 {
		t.Errorf("%+v", wc)
	}
}
