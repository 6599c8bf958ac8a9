package datapath

import "time"

// clock is the monotonic clock of pollers and sessions, in nanoseconds since
// the path was opened.
type clock struct{ start time.Time }

func (c clock) now() int64 { return int64(time.Since(c.start)) }
