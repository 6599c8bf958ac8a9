package node

import (
	"sync"
	"time"
)

// lineLimit bounds the rate of lines of the log that others can cause: a burst,
// then so many a second, and what was left out is counted.
type lineLimit struct {
	now func() time.Time

	mu      sync.Mutex
	tokens  float64
	last    time.Time
	skipped int
}

const (
	lineBurst    = 100
	linesASecond = 10
)

func newLineLimit(now func() time.Time) *lineLimit {
	return &lineLimit{now: now, tokens: lineBurst, last: now()}
}

// allow reports whether a line may be written, and how many were left out
// since the one before it.
func (l *lineLimit) allow() (ok bool, skipped int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	l.tokens = min(lineBurst, l.tokens+linesASecond*now.Sub(l.last).Seconds())
	l.last = now
	if l.tokens < 1 {
		l.skipped++
		return false, 0
	}
	l.tokens--
	skipped, l.skipped = l.skipped, 0
	return true, skipped
}
