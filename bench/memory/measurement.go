package memory

import (
	"sync"
	"syscall"
	"time"
)

// measurement decides what counts: everything from the first ack after the
// warm-up to the last. One goroutine uses it.
type measurement struct {
	options *Options
	begin   time.Time
	warm    time.Duration // without Count
	warming int           // with Count: acks that are still to be passed over

	from, last     time.Time
	cpuFrom, cpuTo time.Duration
	transfers      int
}

func newMeasurement(o *Options) *measurement {
	return &measurement{options: o, begin: time.Now(), warm: min(time.Duration(o.Seconds)*time.Second/4, time.Second), warming: o.Items}
}

// acked is called for each item that the destination has.
func (m *measurement) acked(now time.Time) {
	if !m.from.IsZero() {
		m.transfers++
		m.last, m.cpuTo = now, cpuTime()
		return
	}
	m.warming--
	if m.options.Count > 0 && m.warming <= 0 || m.options.Count == 0 && now.Sub(m.begin) >= m.warm {
		m.from, m.cpuFrom = now, cpuTime()
	}
}

// wantsMore reports whether another item is to be sent while out are.
func (m *measurement) wantsMore(now time.Time, out int) bool {
	if now.Sub(m.begin) >= time.Duration(m.options.Seconds)*time.Second {
		return false
	}
	return m.options.Count == 0 || max(m.warming, 0)+m.options.Count-m.transfers > out
}

func (m *measurement) report() Report {
	bytes := int64(m.transfers) * m.options.ItemBytes
	sec := m.last.Sub(m.from).Seconds()
	return Report{GbitPerSecond: float64(bytes) * 8 / sec / 1e9, GBPerSecond: float64(bytes) / sec / 1e9, Bytes: bytes, Seconds: sec,
		Transfers: m.transfers, Verify: verifyName(m.options.Verify), CPUSource: (m.cpuTo - m.cpuFrom).Seconds() / sec}
}

// taking is the receiving side's use of CPUs. Any goroutine may call it.
type taking struct {
	mu             sync.Mutex
	from, last     time.Time
	cpuFrom, cpuTo time.Duration
}

// begin counts the first time only.
func (t *taking) begin() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.from.IsZero() {
		t.from, t.cpuFrom = time.Now(), cpuTime()
	}
}

func (t *taking) published() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last, t.cpuTo = time.Now(), cpuTime()
}

// cpus is 0 when nothing was published.
func (t *taking) cpus() float64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if wall := t.last.Sub(t.from); wall > 0 && !t.last.IsZero() {
		return (t.cpuTo - t.cpuFrom).Seconds() / wall.Seconds()
	}
	return 0
}

// cpuTime is this process's, user and system.
func cpuTime() time.Duration {
	var r syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &r) != nil {
		return 0 // never (getrusage(2): EFAULT, EINVAL only)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
