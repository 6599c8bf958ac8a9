//go:build linux

package soft

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// epoch makes nanotime a plain monotonic counter.
var epoch = time.Now()

// nanotime is the monotonic time in nanoseconds, always > 0.
func nanotime() int64 { return int64(time.Since(epoch)) + 1 }

// timer wakes a parked poller at its QPs' next deadline: a timerfd in the CQ's
// epoll set.
type timer struct {
	fd  int   // 0 none: descriptor 0 is never ours
	due int64 // what it is set to, 0 off
}

// timerEvent is the data of the timer's epoll events; QPNs are 24 bits.
const timerEvent = -1

func (t *timer) open(epfd int) error {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return fmt.Errorf("create CQ: timerfd_create: %w", err)
	}
	ev := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET, Fd: timerEvent}
	if err := unix.EpollCtl(epfd, unix.EPOLL_CTL_ADD, fd, &ev); err != nil {
		unix.Close(fd)
		return fmt.Errorf("create CQ: epoll_ctl: %w", err)
	}
	t.fd = fd
	return nil
}

// set arms the timer for a deadline in nanotime, 0 for none.
func (t *timer) set(deadline int64) {
	if t.fd == 0 || deadline == t.due {
		return
	}
	t.due = deadline
	var spec unix.ItimerSpec
	if deadline != 0 {
		spec.Value = unix.NsecToTimespec(max(deadline-nanotime(), 1))
	}
	// EINVAL and EFAULT only: neither can happen.
	unix.TimerfdSettime(t.fd, 0, &spec, nil)
}

// clear takes note that it fired.
func (t *timer) clear() { t.due = 0 }

func (t *timer) close() {
	if t.fd != 0 {
		unix.Close(t.fd)
		t.fd = 0
	}
}

// tick looks at the deadlines of every QP.
func (q *cq) tick() {
	now := nanotime()
	for _, qp := range q.qps {
		qp.t.expire(now)
	}
}

// nextDeadline is the earliest deadline of a QP, 0 when there is none.
func (q *cq) nextDeadline() int64 {
	next := int64(0)
	for _, qp := range q.qps {
		if d := qp.t.deadline(); d != 0 && (next == 0 || d < next) {
			next = d
		}
	}
	return next
}

// The bounds of the time after which an unanswered send WR fails.
const (
	connectLeast = 2 * time.Second
	connectMost  = 10 * time.Second
	answerLeast  = 5 * time.Second
	answerMost   = 30 * time.Second
	// lingerTime bounds how long a refused connection stays open so that the
	// peer can read the reason.
	lingerTime = time.Second
)

// lossTime is how long hardware may take to give up: 4 x 4.096 us x 2^timeout
// for each of retry_cnt+1 attempts; 0, infinite there, takes the most.
func lossTime(timeout, retryCnt uint8, least, most time.Duration) time.Duration {
	if timeout == 0 {
		return most
	}
	d := 4 * 4096 * time.Nanosecond << timeout * time.Duration(retryCnt+1)
	return min(max(d, least), most)
}

// rnrTimers are the values of min_rnr_timer in units of 10 us (InfiniBand
// Architecture Specification volume 1, table 45).
var rnrTimers = [32]uint32{
	65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072,
	4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
}

// rnrTime is how long a message may wait for a receive WR: the responder's
// timer, once for the first attempt and once for each retry.
func rnrTime(minTimer, retry uint8) time.Duration {
	return time.Duration(rnrTimers[minTimer&31]) * 10 * time.Microsecond * time.Duration(retry+1)
}
