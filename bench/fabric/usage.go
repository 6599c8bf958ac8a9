package fabric

import (
	"syscall"
	"time"
)

// usage measures how many CPUs this process uses.
type usage struct {
	at  time.Time
	cpu time.Duration
}

func beginUsage() usage { return usage{time.Now(), cpuTime()} }

// cpus is user and system time over wall time since the beginning.
func (u usage) cpus() float64 {
	wall := time.Since(u.at)
	if wall <= 0 {
		return 0
	}
	return float64(cpuTime()-u.cpu) / float64(wall)
}

// cpuTime is the process's, 0 when the kernel does not tell (it does).
func cpuTime() time.Duration {
	var r syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &r) != nil {
		return 0
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
