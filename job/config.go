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
	ErrPageToken   = errors.New("the page token is not one that this node gave; begin again without it")
	ErrDraining    = errors.New("the node is draining and takes no new jobs; submit to another, or undo the drain (`mover drain --undo`)")
	ErrVersion     = errors.New("the job has changed since; read it again and decide with its new version")
	ErrStub        = errors.New("the job belongs to its source's node, which alone can do this")
	ErrPaused      = errors.New("the job was paused")                                                // cause of an attempt's context
	ErrYield       = errors.New("the job turned out large, and the places for large jobs are taken") // likewise
)

// StoreError is a job that could not be kept: the state directory's disk is
// full or failing. The node goes on; the caller may try again.
type StoreError struct{ Err error }

func (e *StoreError) Error() string {
	return "the job could not be written to the node's state directory; the node's log says why, look at its disk"
}

// Unwrap returns ErrStore and the cause, which is for the log: it may name
// files of the node.
func (e *StoreError) Unwrap() []error { return []error{ErrStore, e.Err} }

// ErrStore is what every *StoreError is.
var ErrStore = errors.New("the store of jobs failed")

// Router does an attempt: it is what stands between a job and the data path.
type Router interface {
	// Run carries out one attempt and returns when it is over: when nothing
	// that it started writes or reads any more. It is called in a goroutine
	// of its own, up to Config.MaxRunning at a time.
	//
	// A failure is a *reason.Error. A retryable code puts the job back into
	// the queue; any other ends it; an error without code is INTERNAL. When
	// ctx ends (cancel, deadline, pause, Close), Run must return well within
	// Config.CancelTimeout; the job's state and reason are then the queue's
	// to choose, unless Run returns a reason of its own that ends the job.
	// context.Cause says why: ErrPaused, ErrClosed, ErrYield or a
	// *reason.Error.
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
	// Progress of this attempt, from 0. SetTotal also tells the queue how
	// large the job is, see Config.SmallBytes: call it as soon as it is known,
	// and again as a walk finds more.
	Progress *Progress
	// Limit returns the job's bandwidth limit at this moment, 0 for none. It
	// is cheap; any goroutine may call it.
	Limit func() Rate
	// Items takes what became of each item.
	Items ItemSink
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
	MaxRunning    int           // attempts of small jobs at a time, and as many of large ones; 4
	SmallBytes    int64         // a job is small until its total is known to be more; 64 MiB
	MaxAttempts   int           // failed attempts after which a job fails; 10
	Backoff       time.Duration // after the first failure, doubling; 1 s
	BackoffMax    time.Duration // 60 s
	CancelTimeout time.Duration // how long a canceled or expired attempt may take to return before the job ends without it; 10 s
	Keep          time.Duration // how long ended jobs are kept; 30 days
	KeepMax       int           // ended jobs kept at most; 100000

	// StateDir is where jobs are kept, an existing directory on a local file
	// system that nobody else uses at the same time. "" keeps them in memory,
	// for tests.
	StateDir string
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
		{"MaxAttempts", &c.MaxAttempts, 10}, {"KeepMax", &c.KeepMax, 100000},
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
		{"CancelTimeout", &c.CancelTimeout, 10 * time.Second}, {"Keep", &c.Keep, 30 * 24 * time.Hour},
	} {
		if *d.value < 0 {
			return c, refuse(d.name, "must not be negative")
		}
		if *d.value == 0 {
			*d.value = d.def
		}
	}
	if c.SmallBytes < 0 {
		return c, refuse("SmallBytes", "must not be negative")
	}
	if c.SmallBytes == 0 {
		c.SmallBytes = 64 << 20
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
