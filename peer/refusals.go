package peer

import (
	"log/slog"
	"sync"
	"time"
)

// refusalLog logs what strangers can cause, at a bounded rate: a burst, then
// one line a second, which tells how many were left out.
type refusalLog struct {
	log *slog.Logger
	now func() time.Time

	mu      sync.Mutex
	tokens  float64
	last    time.Time
	skipped int
}

const refusalBurst = 20

func newRefusalLog(log *slog.Logger, now func() time.Time) *refusalLog {
	return &refusalLog{log: log, now: now, tokens: refusalBurst, last: now()}
}

func (r *refusalLog) warn(msg string, args ...any) {
	r.mu.Lock()
	now := r.now()
	r.tokens = min(refusalBurst, r.tokens+now.Sub(r.last).Seconds())
	r.last = now
	if r.tokens < 1 {
		r.skipped++
		r.mu.Unlock()
		return
	}
	r.tokens--
	skipped := r.skipped
	r.skipped = 0
	r.mu.Unlock()
	if skipped > 0 {
		args = append(args, "similar_left_out", skipped)
	}
	r.log.Warn(msg, args...)
}
