//go:build linux

package soft

import (
	"fmt"
	"slices"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"mover/verbs"
)

// channel is a completion channel: an epoll descriptor over
//
//   - the epoll descriptor of each CQ, one-shot, enabled by ReqNotify. It has
//     the CQ's sockets, edge triggered, and a timer for its deadlines. poll(2)
//     on nested epoll descriptors looks through to the sockets (epoll(7));
//   - an eventfd for what has no descriptor: completions already queued, work
//     a bounded Poll left over, finished set-ups.
//
// No wake-up is lost: a poller arms, polls, and only then waits. An edge that
// the last Poll consumed has been worked off or is announced by the eventfd;
// one that comes later is still in the CQ's epoll set.
type channel struct {
	dev  *device
	epfd int
	evfd int

	mu     sync.Mutex
	cqs    []*cq
	closed bool
}

func (d *device) CreateCompChannel() (verbs.CompChannel, error) {
	const op = "create completion channel"
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.admit(op, false, d.counts.CompChannel, maxCQ); err != nil {
		return nil, err
	}
	epfd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("%s: epoll_create1: %w", op, err)
	}
	evfd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		unix.Close(epfd)
		return nil, fmt.Errorf("%s: eventfd: %w", op, err)
	}
	if err := unix.EpollCtl(epfd, unix.EPOLL_CTL_ADD, evfd, &unix.EpollEvent{Events: unix.EPOLLIN}); err != nil {
		unix.Close(epfd)
		unix.Close(evfd)
		return nil, fmt.Errorf("%s: epoll_ctl: %w", op, err)
	}
	d.counts.CompChannel++
	return &channel{dev: d, epfd: epfd, evfd: evfd}, nil
}

func (c *channel) FD() int { return c.epfd }

// kick makes FD readable.
func (c *channel) kick() {
	addOne(c.evfd)
}

// watch enables or disables the CQ's part of the channel.
func (c *channel) watch(q *cq, events uint32) error {
	ev := unix.EpollEvent{Events: events, Fd: int32(q.epfd)}
	return unix.EpollCtl(c.epfd, unix.EPOLL_CTL_MOD, q.epfd, &ev)
}

func (c *channel) Drain() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return &verbs.Error{Op: "drain completion channel", Errno: syscall.EBADF}
	}
	for _, q := range c.cqs {
		if q.armed.Swap(false) {
			if err := c.watch(q, 0); err != nil {
				return fmt.Errorf("drain completion channel: %w", err)
			}
		}
	}
	var b [8]byte
	if _, err := unix.Read(c.evfd, b[:]); err != nil && err != unix.EAGAIN {
		return fmt.Errorf("drain completion channel: %w", err)
	}
	return nil
}

// attach adds a CQ; disarmed, so it announces nothing.
func (c *channel) attach(q *cq) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return &verbs.Error{Op: "create CQ", Errno: syscall.EINVAL, Detail: "the completion channel is destroyed"}
	}
	if err := unix.EpollCtl(c.epfd, unix.EPOLL_CTL_ADD, q.epfd, &unix.EpollEvent{Fd: int32(q.epfd)}); err != nil {
		return fmt.Errorf("create CQ: epoll_ctl: %w", err)
	}
	c.cqs = append(c.cqs, q)
	return nil
}

func (c *channel) detach(q *cq) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cqs = slices.DeleteFunc(c.cqs, func(x *cq) bool { return x == q })
	unix.EpollCtl(c.epfd, unix.EPOLL_CTL_DEL, q.epfd, nil)
}

func (c *channel) Destroy() error {
	c.dev.mu.Lock()
	defer c.dev.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return &verbs.Error{Op: "destroy completion channel", Errno: syscall.EINVAL, Detail: "already destroyed"}
	}
	if len(c.cqs) != 0 {
		return &verbs.Error{Op: "destroy completion channel", Errno: syscall.EBUSY,
			Detail: fmt.Sprintf("%d CQs still use it", len(c.cqs))}
	}
	c.closed = true
	unix.Close(c.epfd)
	unix.Close(c.evfd)
	c.dev.counts.CompChannel--
	return nil
}
