//go:build linux

package soft

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"mover/verbs"
)

const (
	// pollBytes bounds what one Poll moves over all QPs, so that completions
	// reach the owner in time; the next Poll goes on with the next QP.
	pollBytes = 1 << 20
	// tickPolls is how often an unarmed Poll looks at the clock.
	tickPolls = 64
	// readyEvery is how often Poll asks for ready sockets while some QP is
	// busy anyway.
	readyEvery = 4
)

// cqe is a queued completion. Polling it frees the entries of its QP's queue
// up to position freed.
type cqe struct {
	wc    verbs.WC
	qp    *qpBase
	freed uint64
	recv  bool
}

// cq is a completion queue and the engine that drives its QPs. All fields but
// those marked belong to the owner.
type cq struct {
	dev  *device
	ch   *channel
	epfd int // the sockets, edge triggered, and timer
	timer

	ring        []cqe
	head, count int
	dead        bool
	polling     bool // inside progress

	qps    map[uint32]*qpBase
	active []*qpBase // QPs that may have something to do
	first  int       // which of them goes first
	polls  uint
	ready  [32]unix.EpollEvent

	armed     atomic.Bool // any goroutine
	attention atomic.Bool // any goroutine: look at joining and at the set-ups

	mu      sync.Mutex   // guards joining, stage, users and closed
	joining []*qpBase    // created, not yet seen by the owner
	stage   *packetStage // of the UC and UD QPs that receive here
	users   int
	closed  bool
}

func (d *device) CreateCQ(attr verbs.CQInitAttr) (verbs.CQ, error) {
	const op = "create CQ"
	if attr.Entries < 1 || attr.Entries > maxCQE || attr.Vector != 0 {
		return nil, &verbs.Error{Op: op, Errno: syscall.EINVAL,
			Detail: fmt.Sprintf("%d entries, vector %d: allowed are 1..%d entries and vector 0", attr.Entries, attr.Vector, maxCQE)}
	}
	q := &cq{dev: d, ring: make([]cqe, attr.Entries), qps: map[uint32]*qpBase{}}
	if attr.Channel != nil {
		ch, ok := attr.Channel.(*channel)
		if !ok || ch.dev != d {
			return nil, &verbs.Error{Op: op, Errno: syscall.EINVAL, Detail: "the completion channel is another device's"}
		}
		q.ch = ch
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.admit(op, false, d.counts.CQ, maxCQ); err != nil {
		return nil, err
	}
	epfd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("%s: epoll_create1: %w", op, err)
	}
	q.epfd = epfd
	if q.ch != nil {
		err = q.timer.open(epfd)
		if err == nil {
			err = q.ch.attach(q)
		}
		if err != nil {
			q.timer.close()
			unix.Close(epfd)
			return nil, err
		}
	}
	d.counts.CQ++
	return q, nil
}

func (q *cq) Entries() int { return len(q.ring) }

// Poll returns queued completions; if there is room for more it drives the
// QPs, each by a bounded amount. On a dead queue it returns ErrCQOverrun at
// once, and what was queued is lost, as on hardware.
func (q *cq) Poll(wcs []verbs.WC) (int, error) {
	if q.dead {
		return 0, fmt.Errorf("poll CQ of %d entries: %w", len(q.ring), verbs.ErrCQOverrun)
	}
	n := q.pop(wcs)
	if n < len(wcs) {
		q.polling = true
		q.progress()
		q.polling = false
		if q.dead {
			return n, nil // the next Poll tells
		}
		n += q.pop(wcs[n:])
	}
	if q.armed.Load() && (q.count > 0 || len(q.active) > 0) {
		q.ch.kick()
	}
	return n, nil
}

func (q *cq) pop(wcs []verbs.WC) int {
	n := min(len(wcs), q.count)
	for i := range n {
		e := &q.ring[q.head]
		wcs[i] = e.wc
		if e.recv {
			e.qp.recvs.free = e.freed
		} else {
			e.qp.sends.free = e.freed
		}
		e.qp = nil
		if q.head++; q.head == len(q.ring) {
			q.head = 0
		}
	}
	q.count -= n
	return n
}

// push queues a completion. With no room for it the queue dies and takes its
// QPs along.
func (q *cq) push(e *cqe) {
	if q.dead {
		return
	}
	if q.count == len(q.ring) {
		q.dead = true
		q.dev.events.put(verbs.AsyncEvent{Type: verbs.EventCQErr, CQ: q})
		for _, qp := range q.qps {
			qp.t.toErr()
		}
		q.mu.Lock()
		joining := slices.Clone(q.joining)
		q.mu.Unlock()
		for _, qp := range joining {
			qp.t.toErr()
		}
		return
	}
	i := q.head + q.count
	if i >= len(q.ring) {
		i -= len(q.ring)
	}
	q.ring[i] = *e
	q.count++
	if !q.polling && q.armed.Load() {
		q.ch.kick() // Poll looks for itself before it returns
	}
}

// purge drops the completions of a QP that goes away.
func (q *cq) purge(qp *qpBase) {
	kept := 0
	for i := range q.count {
		e := &q.ring[(q.head+i)%len(q.ring)]
		if e.qp != qp {
			q.ring[(q.head+kept)%len(q.ring)] = *e
			kept++
		}
	}
	for i := kept; i < q.count; i++ {
		q.ring[(q.head+i)%len(q.ring)] = cqe{}
	}
	q.count = kept
}

// progress drives the QPs.
func (q *cq) progress() {
	if q.attention.Load() {
		q.attend()
	}
	q.polls++
	armed := q.armed.Load()
	if armed || len(q.active) == 0 || q.polls%readyEvery == 0 {
		q.collect()
	}
	if armed || q.polls%tickPolls == 0 {
		q.tick()
	}
	left := pollBytes
	driven := 0
	n := len(q.active)
	if q.first >= n {
		q.first = 0
	}
	for i := range n {
		j := q.first + i
		if j >= n {
			j -= n
		}
		if left <= 0 {
			break
		}
		qp := q.active[j]
		moved, more := qp.t.drive(left)
		left -= moved
		if !more {
			qp.idle[qp.side(q)] = true
		}
		driven++
	}
	q.first += driven
	q.compact()
	if armed {
		q.timer.set(q.nextDeadline())
	}
}

// compact removes the QPs that went idle, in place.
func (q *cq) compact() {
	kept := 0
	for _, qp := range q.active {
		if s := qp.side(q); qp.idle[s] {
			qp.idle[s], qp.listed[s] = false, false
			continue
		}
		q.active[kept] = qp
		kept++
	}
	clear(q.active[kept:])
	q.active = q.active[:kept]
}

// collect asks which sockets became readable or writable.
func (q *cq) collect() {
	n, errno := pollReady(q.epfd, q.ready[:])
	if errno != 0 {
		return // EBADF after Destroy only
	}
	for i := range n {
		ev := &q.ready[i]
		if ev.Fd < 0 {
			q.timer.clear()
			continue
		}
		qp := q.qps[uint32(ev.Fd)]
		if qp == nil {
			continue
		}
		if ev.Events&(unix.EPOLLIN|unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR) != 0 {
			qp.readable = true
			// One edge may stand for data and the end behind it.
			qp.ending = qp.ending || ev.Events&^(unix.EPOLLIN|unix.EPOLLOUT) != 0
		}
		if ev.Events&(unix.EPOLLOUT|unix.EPOLLHUP|unix.EPOLLERR) != 0 {
			qp.writable = true
		}
		qp.wake()
	}
}

// attend takes in new QPs and lets all of them look for what is new.
func (q *cq) attend() {
	q.attention.Store(false) // before looking: a later change sets it again
	q.mu.Lock()
	for _, qp := range q.joining {
		q.qps[qp.qpn] = qp
	}
	q.joining = q.joining[:0]
	q.mu.Unlock()
	if cap(q.active) < len(q.qps) {
		q.active = append(make([]*qpBase, 0, 2*len(q.qps)), q.active...)
	}
	for _, qp := range q.qps {
		qp.t.attend()
	}
}

// notify asks the owner to attend. From any goroutine.
func (q *cq) notify() {
	q.attention.Store(true)
	if q.armed.Load() {
		q.ch.kick()
	}
}

// touch makes sure that a poller that has armed the queue and not yet waited
// sees what was posted since.
func (q *cq) touch() {
	if q.armed.Load() {
		q.ch.kick()
	}
}

func (q *cq) ReqNotify(bool) error {
	if q.ch == nil {
		return &verbs.Error{Op: "request notification", Errno: syscall.EINVAL, Detail: "the CQ has no completion channel"}
	}
	q.armed.Store(true)
	if err := q.ch.watch(q, unix.EPOLLIN|unix.EPOLLONESHOT); err != nil {
		return fmt.Errorf("request notification: epoll_ctl: %w", err)
	}
	if q.count > 0 || len(q.active) > 0 || q.dead || q.attention.Load() {
		q.ch.kick()
	}
	q.timer.set(q.nextDeadline())
	return nil
}

func (q *cq) Destroy() error {
	q.dev.mu.Lock()
	defer q.dev.mu.Unlock()
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return &verbs.Error{Op: "destroy CQ", Errno: syscall.EINVAL, Detail: "already destroyed"}
	}
	if q.users != 0 {
		return &verbs.Error{Op: "destroy CQ", Errno: syscall.EBUSY, Detail: fmt.Sprintf("%d QP queues still use it", q.users)}
	}
	q.closed, q.dead = true, true
	if q.ch != nil {
		q.ch.detach(q)
		q.timer.close()
	}
	unix.Close(q.epfd)
	q.dev.counts.CQ--
	return nil
}

// join adds a QP's queue, from any goroutine.
func (q *cq) join(qp *qpBase) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return &verbs.Error{Op: "create QP", Errno: syscall.EINVAL, Detail: "the CQ is destroyed"}
	}
	q.users++
	if !slices.Contains(q.joining, qp) {
		q.joining = append(q.joining, qp)
	}
	return nil
}

// leave removes a QP's queue; the owner calls.
func (q *cq) leave(qp *qpBase) {
	q.mu.Lock()
	q.users--
	q.joining = slices.DeleteFunc(q.joining, func(x *qpBase) bool { return x == qp })
	q.mu.Unlock()
	delete(q.qps, qp.qpn)
	q.active = slices.DeleteFunc(q.active, func(x *qpBase) bool { return x == qp })
	q.purge(qp)
}
