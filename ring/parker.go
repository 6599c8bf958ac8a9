package ring

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// ErrClosed is returned by Park on a closed parker.
var ErrClosed = errors.New("ring: parker is closed")

// ErrNoDeadline is returned by Park for a negative timeout: every wait has a deadline.
var ErrNoDeadline = errors.New("ring: park without a deadline: the timeout must not be negative")

// Parker lets one consumer sleep until a producer wakes it, a descriptor has events, or a deadline passes, without
// losing a wake-up. The package comment has the order of calls; the order is the protocol.
//
// Prepare, Cancel, Park and Close are the consumer's; Wake and FD may be called by any goroutine at any time, also
// after Close. A wake-up may be spurious (at most one for each Prepare), so the consumer polls its queues after every
// Park, whatever it returned.
type Parker struct {
	// word and bit say where "parked" is kept: alone in own for a lone parker, among its pool's seats otherwise. The
	// bit is set by Prepare and cleared by whoever comes first: the consumer, or the one producer that then owes a
	// write to the eventfd. That makes it at most one write a park.
	word *atomic.Uint64
	bit  uint64
	pool *Pool // nil for a lone parker

	fd      int
	poll    []unix.PollFd // of Park; grows to the most descriptors ever waited on
	timeout unix.Timespec // of Park
	drained [eventfdBytes]byte

	// mu makes Close wait for a write in progress: a late write must not reach a descriptor number that was reused.
	// It is taken only by a producer that found the consumer parked.
	mu     sync.Mutex
	closed bool
	rung   [eventfdBytes]byte

	_   [padBytes]byte
	own atomic.Uint64
	_   [padBytes - 8]byte
}

// NewParker makes a parker with its own eventfd, which Close gives back. It fails when the process is out of
// descriptors.
func NewParker() (*Parker, error) {
	p := &Parker{bit: 1}
	p.word = &p.own
	if err := p.open(); err != nil {
		return nil, err
	}
	return p, nil
}

func (p *Parker) open() error {
	fd, err := openEventfd()
	if err != nil {
		return err
	}
	p.fd = fd
	p.poll = make([]unix.PollFd, 0, 16)
	return nil
}

// Prepare announces that the consumer is about to sleep. After it, and before Park, the consumer polls every queue and
// CQ once more: what was published before Prepare wakes nobody.
func (p *Parker) Prepare() {
	// Sequentially consistent: the polls that follow must not be satisfied from before this store.
	p.word.Or(p.bit)
}

// Cancel takes Prepare back, after the second poll found work. In a pool it passes a wake-up that a producer has
// already spent on this consumer on to another one, because this consumer is about to be busy. It makes no system call
// otherwise; a signal that was already sent then ends the next Park early.
func (p *Parker) Cancel() {
	if claimed := p.unpark(); claimed && p.pool != nil {
		p.pool.Wake(1)
	}
}

// unpark clears "parked" and says whether a producer had done so.
func (p *Parker) unpark() (claimed bool) {
	return p.word.And(^p.bit)&p.bit == 0
}

// Park sleeps until a producer calls Wake, one of fds has events, or timeout has passed; then it clears "parked" and
// drains the eventfd. woken is true when a producer's signal had arrived. fds may be nil; their Revents are set as by
// poll(2), to 0 after a timeout. The caller must have called Prepare and polled in vain since.
//
// timeout is 0 (look, do not sleep) or more; a negative one is refused with ErrNoDeadline. Signals do not cut it
// short. A closed parker gives ErrClosed, and a failure of ppoll(2) its error; "parked" is cleared then, too. Park
// allocates only when it is given more descriptors than ever before (and more than 15). It blocks its OS thread.
func (p *Parker) Park(fds []unix.PollFd, timeout time.Duration) (woken bool, err error) {
	if timeout < 0 {
		p.unpark()
		return false, ErrNoDeadline
	}
	if p.closed {
		p.unpark()
		return false, ErrClosed
	}
	p.poll = append(p.poll[:0], unix.PollFd{Fd: int32(p.fd), Events: unix.POLLIN})
	p.poll = append(p.poll, fds...)
	n, err := pollUntil(p.poll, timeout, &p.timeout)
	// Clear before draining: a producer that comes between the two finds nobody parked and writes nothing.
	p.unpark()
	if err != nil {
		return false, fmt.Errorf("ring: ppoll on %d descriptors: %w", len(p.poll), err)
	}
	for i := range fds {
		fds[i].Revents = p.poll[i+1].Revents
	}
	if n > 0 && p.poll[0].Revents != 0 {
		woken = true
		if err := drainEventfd(p.fd, &p.drained); err != nil {
			return woken, fmt.Errorf("ring: read eventfd: %w", err)
		}
	}
	return woken, nil
}

// Wake ends the consumer's Park, or the one it has prepared, and says whether it had to: false when the consumer is
// awake, or another producer is waking it. The producer calls it after its entries are visible, once for any number
// of them. It costs one load when the consumer is awake. It never blocks for longer than a write to an eventfd takes.
//
// A nil Parker may be woken: it stands for a consumer that never sleeps.
func (p *Parker) Wake() bool {
	if p == nil {
		return false
	}
	for {
		old := p.word.Load()
		if old&p.bit == 0 {
			return false
		}
		if p.word.CompareAndSwap(old, old&^p.bit) {
			p.signal()
			return true
		}
	}
}

// signal writes the eventfd; the caller has cleared the parked bit and with that taken on the duty.
func (p *Parker) signal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	if err := ringEventfd(p.fd, &p.rung); err != nil {
		// write(2) on an open eventfd with a valid buffer has no other failure; a silent one would be a lost wake-up.
		panic(fmt.Sprintf("ring: write eventfd %d: %v", p.fd, err))
	}
}

// FD returns the eventfd, readable while a wake-up is pending, or -1 after Close. It stays the parker's.
func (p *Parker) FD() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return -1
	}
	return p.fd
}

// Close gives the eventfd back. The consumer calls it, not while in Park. Later calls return nil; later Wakes do
// nothing.
func (p *Parker) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	p.closed = true
	if err := unix.Close(p.fd); err != nil {
		return fmt.Errorf("ring: close eventfd: %w", err)
	}
	return nil
}
