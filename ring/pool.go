package ring

import (
	"errors"
	"fmt"
	"math/bits"
	"sync/atomic"
)

// MaxSeats is the most consumers a [Pool] can have.
const MaxSeats = 1024

const seatsPerWord = 64

// Pool lets several consumers of one [MPMC] sleep, each in its own seat, and a producer wake as many of them as it has
// work for. Every seat has its own bit among the parked ones and its own eventfd: a producer picks a sleeper by
// clearing its bit, so no two producers spend their wake-ups on the same one, and a signal that comes too late disturbs
// only the seat it was meant for.
//
// A seat is a [Parker] and follows its protocol; its consumer takes entries with [MPMC.TryPopWake] and, when the
// second poll found work, calls Cancel before it does the work. Then no entry waits while a consumer sleeps.
type Pool struct {
	seats []*Parker
	next  atomic.Uint32 // where the next search begins, so that the first seats are not the only ones to work
	words []paddedWord
}

type paddedWord struct {
	parked atomic.Uint64
	_      [padBytes - 8]byte
}

// NewPool makes a pool with seats for 1 to MaxSeats consumers, and an eventfd for each.
func NewPool(seats int) (*Pool, error) {
	if seats < 1 || seats > MaxSeats {
		return nil, fmt.Errorf("ring: a pool of %d seats: must be 1 to %d", seats, MaxSeats)
	}
	p := &Pool{
		seats: make([]*Parker, 0, seats),
		words: make([]paddedWord, (seats+seatsPerWord-1)/seatsPerWord),
	}
	for i := range seats {
		seat := &Parker{
			pool: p,
			word: &p.words[i/seatsPerWord].parked,
			bit:  1 << (i % seatsPerWord),
		}
		if err := seat.open(); err != nil {
			return nil, errors.Join(fmt.Errorf("ring: seat %d of %d: %w", i+1, seats, err), p.Close())
		}
		p.seats = append(p.seats, seat)
	}
	return p, nil
}

// Len returns the number of seats.
func (p *Pool) Len() int { return len(p.seats) }

// Seat returns seat i, 0 to Len()-1, for the one consumer that sits there.
func (p *Pool) Seat(i int) *Parker { return p.seats[i] }

// Wake wakes up to n consumers that sleep, or are about to, and returns how many it woke; n is usually the number of
// entries just pushed. Any goroutine may call it, after its entries are visible. It costs one load for each 64 seats
// when nobody sleeps. A nil Pool may be woken: it stands for consumers that never sleep.
func (p *Pool) Wake(n int) int {
	if p == nil {
		return 0
	}
	woken := 0
	for ; woken < n; woken++ {
		seat := p.claim()
		if seat == nil {
			break
		}
		seat.signal()
	}
	return woken
}

// claim clears the bit of one parked seat and returns the seat; nil when none is parked. Every word is loaded after
// the call began, which the protocol needs, and a word is given up only when it was seen to be 0.
func (p *Pool) claim() *Parker {
	start := p.next.Load()
	for i := range p.words {
		w := (int(start)/seatsPerWord + i) % len(p.words)
		word := &p.words[w].parked
		for {
			old := word.Load()
			if old == 0 {
				break
			}
			// The first set bit from where the last search ended, cyclically.
			from := int(start % seatsPerWord)
			bit := (bits.TrailingZeros64(bits.RotateLeft64(old, -from)) + from) % seatsPerWord
			if word.CompareAndSwap(old, old&^(1<<bit)) {
				seat := w*seatsPerWord + bit
				p.next.Store(uint32((seat + 1) % len(p.seats)))
				return p.seats[seat]
			}
		}
	}
	return nil
}

// Close closes every seat. No consumer may be in Park.
func (p *Pool) Close() error {
	var errs []error
	for _, seat := range p.seats {
		errs = append(errs, seat.Close())
	}
	return errors.Join(errs...)
}
