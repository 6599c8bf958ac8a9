// Package jobtest has what tests of the queue and of its users need: a clock
// that stands still until the test moves it. It must not be imported by
// anything but tests.
//
//	clock := jobtest.NewClock()
//	q, err := job.NewQueue(job.Config{Clock: clock, ...})
//	clock.Advance(time.Second) // runs what became due, in order, before it returns
package jobtest

import (
	"sync"
	"time"
)

// Clock is a job.Clock moved by Advance. Safe for concurrent use.
type Clock struct {
	mu     sync.Mutex
	now    time.Time
	seq    uint64
	timers []*timer
}

type timer struct {
	clock *Clock
	due   time.Time
	seq   uint64
	f     func()
}

// NewClock returns a clock that stands at a fixed date.
func NewClock() *Clock {
	return &Clock{now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
}

// Now implements job.Clock.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// AfterFunc implements job.Clock; f runs inside Advance, even for d <= 0.
func (c *Clock) AfterFunc(d time.Duration, f func()) interface{ Stop() bool } {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seq++
	t := &timer{clock: c, due: c.now.Add(d), seq: c.seq, f: f}
	c.timers = append(c.timers, t)
	return t
}

// Stop implements job.Stopper.
func (t *timer) Stop() bool {
	t.clock.mu.Lock()
	defer t.clock.mu.Unlock()
	return t.clock.remove(t)
}

func (c *Clock) remove(t *timer) bool {
	for i, other := range c.timers {
		if other == t {
			c.timers = append(c.timers[:i], c.timers[i+1:]...)
			return true
		}
	}
	return false
}

// Advance moves the clock by d and runs, in the caller's goroutine and in
// order of their time, the functions that became due.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	end := c.now.Add(d)
	for {
		var next *timer
		for _, t := range c.timers {
			if t.due.After(end) {
				continue
			}
			if next == nil || t.due.Before(next.due) || t.due.Equal(next.due) && t.seq < next.seq {
				next = t
			}
		}
		if next == nil {
			break
		}
		c.remove(next)
		if next.due.After(c.now) {
			c.now = next.due
		}
		c.mu.Unlock()
		next.f()
		c.mu.Lock()
	}
	c.now = end
	c.mu.Unlock()
}

// Timers returns how many functions wait to become due.
func (c *Clock) Timers() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.timers)
}
