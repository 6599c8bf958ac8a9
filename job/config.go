package job

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"
)

// Errors of the queue.
var (
	ErrNotFound    = errors.New("no such job; ended jobs are kept for a limited time")
	ErrQueueFull   = errors.New("the queue is full; try again when jobs have ended")
	ErrClosed      = errors.New("the node is stopping; try again when it is back")
	ErrKeyConflict = errors.New("the idempotency key was used for a different job; use a new key")
	ErrPageToken   = errors.New("the page token is not one that this node gave")
)

// Router does an attempt: it is what stands between a job and the data path.
type Router interface {
	// Run carries out one attempt and returns when it is over: when nothing
	// that it started writes or reads any more. It is called in a goroutine
	// of its own, up to Config.MaxRunning at a time.
	//
	// A failure is a *reason.Error. A retryable code puts the job back into
	// the queue; any other ends it; an error without code is INTERNAL. When
	// ctx ends (cancel, deadline, Close), Run must return well within
	// Config.CancelTimeout; the job's state and reason are then the queue's
	// to choose, unless Run returns a reason of its own that ends the job.
	Run(ctx context.Context, a *Attempt) (Result, error)
}

// Attempt is what a Router needs to know. It is valid until Run returns.
type Attempt struct {
	Job    Snapshot // as the attempt began
	Number int      // 1.., never given twice for a job
	// Phase tells that the attempt has come to Running, Verifying or
	// Publishing. A phase that the transition table does not allow is refused
	// and logged, and changes nothing. Any goroutine may call it.
	Phase func(State)
	// Progress of this attempt, from 0.
	Progress *Progress
}

// Config is what a Queue needs. Zero values of the optional fields mean the
// default given.
type Config struct {
	NodeName string // required, see ValidName
	Router   Router // required

	Clock  Clock          // SystemClock{}
	Rand   func() float64 // in [0,1); rand.Float64. Called under the queue's lock
	Logger *slog.Logger   // discards

	MaxQueued     int           // jobs that are neither ended nor started; 10000
	MaxRunning    int           // attempts at a time; 4
	MaxAttempts   int           // failed attempts after which a job fails; 10
	Backoff       time.Duration // after the first failure, doubling; 1 s
	BackoffMax    time.Duration // 60 s
	CancelTimeout time.Duration // how long a canceled or expired attempt may take to return before the job ends without it; 10 s
	Keep          int           // ended jobs kept; 1000
}

func (c Config) withDefaults() (Config, error) {
	if !ValidName(c.NodeName) {
		return c, refuse("NodeName", nameRule)
	}
	if c.Router == nil {
		return c, errors.New("job: Config.Router is missing")
	}
	if c.Clock == nil {
		c.Clock = SystemClock{}
	}
	if c.Rand == nil {
		c.Rand = rand.Float64
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	for _, d := range []struct {
		name  string
		value *int
		def   int
	}{
		{"MaxQueued", &c.MaxQueued, 10000}, {"MaxRunning", &c.MaxRunning, 4},
		{"MaxAttempts", &c.MaxAttempts, 10}, {"Keep", &c.Keep, 1000},
	} {
		if *d.value < 0 {
			return c, refuse(d.name, "must not be negative")
		}
		if *d.value == 0 {
			*d.value = d.def
		}
	}
	for _, d := range []struct {
		name  string
		value *time.Duration
		def   time.Duration
	}{
		{"Backoff", &c.Backoff, time.Second}, {"BackoffMax", &c.BackoffMax, time.Minute},
		{"CancelTimeout", &c.CancelTimeout, 10 * time.Second},
	} {
		if *d.value < 0 {
			return c, refuse(d.name, "must not be negative")
		}
		if *d.value == 0 {
			*d.value = d.def
		}
	}
	return c, nil
}

// backoff returns how long to wait after the given number of failures, from 1:
// the base doubled for each, give or take a fifth, never more than the maximum.
// Without the spread, jobs that one lost peer failed would all come back in the
// same instant.
func (c Config) backoff(failures int) time.Duration {
	d := c.Backoff
	for i := 1; i < failures && d < c.BackoffMax; i++ {
		d *= 2
	}
	d = min(d, c.BackoffMax)
	return min(time.Duration(float64(d)*(0.8+0.4*c.Rand())), c.BackoffMax)
}
