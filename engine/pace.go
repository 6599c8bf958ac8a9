package engine

import (
	"math"
	"math/bits"
	"slices"
	"sync"
)

// MaxPacers bounds Item.Pace.
const MaxPacers = 4

// Times of pacing, in ns.
const (
	// paceStep is how often a session looks at most whether there are tokens: a
	// bucket holds a hundred of them, so looking late costs no rate.
	paceStep = 1e6
	// paceLook is how often at least: SetRate wakes nobody.
	paceLook = 100e6
	// paceGrace is how late one who waits may look and keep its place. It is
	// less than a bucket holds, for one who is gone keeps the others waiting.
	paceGrace = 50e6
)

// Pacer limits the bytes per second of the items that name it in Item.Pace, in
// any number of sessions of a node. It is a token bucket that may go into debt:
// a chunk or a segment goes whole as soon as the bucket is not empty, so that
// the lowest rate needs no smaller ones. In any time t it lets through at most
// rate x t, what the bucket holds (100 ms of the rate, or one chunk if that is
// more), and one chunk. Items that wait take turns.
//
// SetRate and Rate may be called from any goroutine; the rest is the
// sessions'. Its time is that of Session.Run.
type Pacer struct {
	mu      sync.Mutex
	rate    int64  // bytes per second, 0 without a limit
	tokens  int64  // bytes that may go now; below 0 is debt
	rest    uint64 // of another byte, in 1e-9
	at      int64  // when that was so
	started bool   // the bucket has been filled
	chunk   int64  // the largest that was asked for
	queue   []*payer
	last    *payer // who was served last
	left    int64  // bytes of its turn
}

// payer is an item in the queue of one of its pacers, which guards it.
type payer struct {
	queued bool
	due    int64 // it looks again by then
}

// NewPacer makes a pacer with its bucket full. bytesPerSecond is as in SetRate.
func NewPacer(bytesPerSecond int64) *Pacer {
	return &Pacer{rate: max(bytesPerSecond, 0)}
}

// SetRate changes the rate, for what is under way as well, within 100 ms; 0, or
// less, means without a limit. Below 1 KiB/s a chunk may take hours. A debt that
// was made at another rate is paid off at the new one.
func (p *Pacer) SetRate(bytesPerSecond int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rate = max(bytesPerSecond, 0)
	if p.rate > 0 {
		return
	}
	for _, w := range p.queue {
		w.queued = false
	}
	p.queue, p.last, p.left, p.started = nil, nil, 0, false
}

// Rate is the rate in bytes per second, 0 without a limit.
func (p *Pacer) Rate() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.rate
}

// take lets who send bytes now, or says when to ask again.
func (p *Pacer) take(now int64, who *payer, bytes int64) (ok bool, next int64) {
	return p.ask(now, who, bytes, true)
}

// ready is take, except that nothing is taken.
func (p *Pacer) ready(now int64, who *payer, bytes int64) (ok bool, next int64) {
	return p.ask(now, who, bytes, false)
}

func (p *Pacer) ask(now int64, who *payer, bytes int64, take bool) (ok bool, next int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rate == 0 {
		return true, now
	}
	p.chunk = max(p.chunk, bytes)
	p.refill(now)
	for len(p.queue) > 0 && (!p.queue[0].queued || now > p.queue[0].due+paceGrace) {
		p.shift()
	}
	first := len(p.queue) > 0 && p.queue[0] == who
	switch {
	case p.tokens <= 0:
		next = p.positiveAt()
	case len(p.queue) > 0 && !first && (who.queued || who != p.last || p.left <= 0):
		next = now // another's turn, who is about to look
	default:
		if !take {
			return true, now
		}
		if first {
			p.shift()
		}
		if who != p.last || p.left <= 0 {
			// A turn is some looks long, so that who looks late, or just behind
			// another, has its share all the same.
			p.last, p.left = who, p.rate/100
		}
		p.tokens -= bytes
		p.left -= bytes
		return true, now
	}
	next = min(max(next, now+paceStep), now+paceLook)
	who.due = next
	switch {
	case who.queued:
	case who == p.last && p.left > 0: // its turn is not over
		p.queue = slices.Insert(p.queue, 0, who)
	default:
		p.queue = append(p.queue, who)
	}
	who.queued = true
	return false, next
}

func (p *Pacer) shift() {
	p.queue[0].queued = false
	p.queue[0] = nil
	p.queue = p.queue[1:]
}

// giveBack returns what was taken and not used.
func (p *Pacer) giveBack(bytes int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tokens += bytes
}

// leave ends who's waiting: the others wait for it no longer.
func (p *Pacer) leave(who *payer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	who.queued, who.due = false, math.MinInt64
}

// refill adds the tokens of the time since the last call, exactly. Goroutines
// that share a pacer may come with times out of order.
func (p *Pacer) refill(now int64) {
	full := max(p.chunk, p.rate/10)
	if !p.started {
		p.started, p.at, p.tokens, p.rest = true, now, full, 0
		return
	}
	p.tokens = min(p.tokens, full) // the rate may have been lowered
	if now <= p.at {
		return
	}
	hi, lo := bits.Mul64(uint64(p.rate), uint64(now-p.at))
	lo, carry := bits.Add64(lo, p.rest, 0)
	hi += carry
	p.at = now
	if hi < 1e9 { // else the quotient has more than 64 bits
		if n, rest := bits.Div64(hi, lo, 1e9); n < uint64(full-p.tokens) {
			p.tokens, p.rest = p.tokens+int64(n), rest
			return
		}
	}
	p.tokens, p.rest = full, 0
}

// positiveAt is when the bucket, which is empty, holds a byte.
func (p *Pacer) positiveAt() int64 {
	hi, lo := bits.Mul64(uint64(1-p.tokens), 1e9)
	lo, borrow := bits.Sub64(lo, p.rest, 0)
	hi -= borrow
	lo, carry := bits.Add64(lo, uint64(p.rate-1), 0) // rounded up
	if hi += carry; hi >= uint64(p.rate) {
		return math.MaxInt64
	}
	if ns, _ := bits.Div64(hi, lo, uint64(p.rate)); ns < uint64(math.MaxInt64-max(p.at, 0)) {
		return p.at + int64(ns)
	}
	return math.MaxInt64
}

// mayPost asks all of an item's pacers for bytes; none gives anything unless all
// do. An item that waits for nothing else is not stalled.
func (s *Session) mayPost(i *sendItem, bytes int64) bool {
	for k, p := range i.pacers {
		if ok, next := p.ready(s.now, &i.payers[k], bytes); !ok {
			return s.paced(i, next)
		}
	}
	for k, p := range i.pacers {
		if ok, next := p.take(s.now, &i.payers[k], bytes); !ok { // another session came in between
			for _, before := range i.pacers[:k] {
				before.giveBack(bytes)
			}
			return s.paced(i, next)
		}
	}
	return true
}

func (s *Session) paced(i *sendItem, next int64) bool {
	s.paceAt = min(s.paceAt, next)
	if i.outstanding == len(i.held) {
		i.progressAt = s.now
	}
	return false
}

// postHeld lets the segments go that waited for their items' pacers.
func (s *Session) postHeld() {
	for _, i := range s.sending {
		for i.phase == sendMoving && len(i.held) > 0 && s.mayPost(i, int64(len(i.held[0].memory))) {
			seg := i.held[0]
			i.held = i.held[1:]
			seg.held = false
			g := s.groups[seg.group]
			s.command(g.poller, command{kind: commandSendSegment, group: g.group, send: seg})
		}
	}
}

// dropHeld settles the segments of an item that ends before they went.
func (s *Session) dropHeld(i *sendItem) {
	held := i.held
	i.held = nil
	for _, seg := range held {
		seg.back = true
		s.settleSegment(s.groups[seg.group], seg)
	}
}
