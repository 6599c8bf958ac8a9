package job

import "time"

// Clock is time as the queue sees it. Implementations are safe for concurrent
// use. Package jobtest has one that a test moves by hand.
type Clock interface {
	// Now returns the time. Differences between two results must not jump
	// when the wall clock is set: time.Now's monotonic reading does this.
	Now() time.Time
	// AfterFunc calls f once, in a goroutine of its own or of the clock's,
	// when d has passed. It never calls f before it returns. The result's
	// Stop prevents the call if it has not begun.
	AfterFunc(d time.Duration, f func()) Stopper
}

// Stopper ends a timer. Stop reports whether it prevented the call. It is an
// alias so that a Clock can be written without importing this package.
type Stopper = interface{ Stop() bool }

// SystemClock is the machine's clock.
type SystemClock struct{}

// Now returns time.Now().
func (SystemClock) Now() time.Time { return time.Now() }

// AfterFunc is time.AfterFunc.
func (SystemClock) AfterFunc(d time.Duration, f func()) Stopper { return time.AfterFunc(d, f) }
