package ring

import (
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// never is a deadline that a test reaches only by failing.
const never = time.Minute

func newParker(t testing.TB) *Parker {
	t.Helper()
	p, err := NewParker()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func park(t *testing.T, p *Parker, timeout time.Duration, want bool) {
	t.Helper()
	woken, err := p.Park(nil, timeout)
	if err != nil || woken != want {
		t.Fatalf("Park: woken %v, %v; want %v", woken, err, want)
	}
}

func TestParkerWakesOncePerPark(t *testing.T) {
	p := newParker(t)
	if p.Wake() {
		t.Fatal("woke a consumer that is awake")
	}
	p.Prepare()
	if !p.Wake() {
		t.Fatal("did not wake a prepared consumer")
	}
	if p.Wake() {
		t.Fatal("woke it twice")
	}
	park(t, p, never, true)
	if p.Wake() {
		t.Fatal("woke it after Park")
	}
	// Nothing is left of the first wake-up.
	p.Prepare()
	park(t, p, 0, false)
	if p.Wake() {
		t.Fatal("a timeout left it parked")
	}
}

func TestParkerCancel(t *testing.T) {
	p := newParker(t)
	p.Prepare()
	p.Cancel()
	if p.Wake() {
		t.Fatal("woke a consumer that had cancelled")
	}
	// A wake-up between Prepare and Cancel costs one spurious return, and only one.
	p.Prepare()
	p.Wake()
	p.Cancel()
	p.Prepare()
	park(t, p, never, true)
	p.Prepare()
	park(t, p, 0, false)
}

func TestParkerRefusesNoDeadline(t *testing.T) {
	p := newParker(t)
	p.Prepare()
	if _, err := p.Park(nil, -1); !errors.Is(err, ErrNoDeadline) {
		t.Fatalf("got %v", err)
	}
	if p.Wake() {
		t.Fatal("still parked")
	}
}

func TestParkerDescriptors(t *testing.T) {
	p := newParker(t)
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pipe[0])
	defer unix.Close(pipe[1])
	// More than the parker has room for at first, and stale Revents.
	fds := make([]unix.PollFd, 20)
	for i := range fds {
		fds[i] = unix.PollFd{Fd: -1, Revents: unix.POLLERR}
	}
	fds[19] = unix.PollFd{Fd: int32(pipe[0]), Events: unix.POLLIN}
	if _, err := unix.Write(pipe[1], []byte{1}); err != nil {
		t.Fatal(err)
	}
	p.Prepare()
	woken, err := p.Park(fds, never)
	if err != nil || woken {
		t.Fatalf("Park: woken %v, %v", woken, err)
	}
	if fds[0].Revents != 0 || fds[19].Revents != unix.POLLIN {
		t.Fatalf("events: %+v", fds)
	}
	// Both at once.
	p.Prepare()
	p.Wake()
	if woken, err := p.Park(fds, never); err != nil || !woken || fds[19].Revents != unix.POLLIN {
		t.Fatalf("Park: woken %v, %v, events %+v", woken, err, fds[19])
	}
	if p.Wake() {
		t.Fatal("still parked")
	}
}

func TestParkerClosed(t *testing.T) {
	p, err := NewParker()
	if err != nil {
		t.Fatal(err)
	}
	if p.FD() < 0 {
		t.Fatalf("FD: %d", p.FD())
	}
	p.Prepare()
	for range 2 {
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
	}
	p.Wake() // must not write to a descriptor that is somebody else's by now
	if p.FD() != -1 {
		t.Fatalf("FD after Close: %d", p.FD())
	}
	p.Prepare()
	if _, err := p.Park(nil, 0); !errors.Is(err, ErrClosed) {
		t.Fatalf("got %v", err)
	}
	var none *Parker
	var noPool *Pool
	if none.Wake() || noPool.Wake(1) != 0 {
		t.Fatal("woke nobody")
	}
}

// TestParkSurvivesSignals interrupts ppoll(2) again and again; a Park that gave up at EINTR would return before the
// wake-up.
func TestParkSurvivesSignals(t *testing.T) {
	p := newParker(t)
	var tid atomic.Int64
	var interrupted atomic.Bool
	p.Prepare()
	var wg sync.WaitGroup
	wg.Go(func() {
		for tid.Load() == 0 {
			runtime.Gosched()
		}
		for range 50 {
			// SIGURG is what the runtime preempts with, so its handler is harmless.
			if err := unix.Tgkill(unix.Getpid(), int(tid.Load()), unix.SIGURG); err != nil {
				t.Error(err)
			}
			time.Sleep(100 * time.Microsecond) // lets it get back to sleep; the result does not depend on it
		}
		interrupted.Store(true)
		p.Wake()
	})
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	tid.Store(int64(unix.Gettid()))
	woken, err := p.Park(nil, never)
	if err != nil || !woken || !interrupted.Load() {
		t.Fatalf("Park: woken %v, %v, after the signals %v", woken, err, interrupted.Load())
	}
	wg.Wait()
}

// TestParkerStress has real threads enqueue and wake while one consumer parks with a deadline it must never need.
func TestParkerStress(t *testing.T) {
	const producers, each = 3, 3000
	p := newParker(t)
	q := NewMPMC[int](64)
	var wg sync.WaitGroup
	for range producers {
		wg.Go(func() {
			for i := 0; i < each; {
				if q.TryPush(i) {
					p.Wake()
					i++
				} else {
					runtime.Gosched()
				}
				if i%64 == 0 {
					runtime.Gosched()
				}
			}
		})
	}
	parks := 0
	for taken := 0; taken < producers*each; {
		if _, ok := q.TryPop(); ok {
			taken++
			continue
		}
		p.Prepare()
		if _, ok := q.TryPop(); ok {
			p.Cancel()
			taken++
			continue
		}
		parks++
		if woken, err := p.Park(nil, never); err != nil || !woken {
			t.Fatalf("Park after %d entries: woken %v, %v", taken, woken, err)
		}
	}
	wg.Wait()
	t.Logf("%d parks for %d entries", parks, producers*each)
}

func newPool(t testing.TB, seats int) *Pool {
	t.Helper()
	p, err := NewPool(seats)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func TestPoolSeats(t *testing.T) {
	for _, n := range []int{-1, 0, MaxSeats + 1} {
		if _, err := NewPool(n); err == nil {
			t.Errorf("made a pool of %d seats", n)
		}
	}
}

func TestPoolWakesEachSleeperOnce(t *testing.T) {
	const seats = 70 // two words
	p := newPool(t, seats)
	if p.Len() != seats || p.Wake(1) != 0 {
		t.Fatal("a new pool has sleepers")
	}
	asleep := []int{0, 3, 63, 64, 69}
	for _, i := range asleep {
		p.Seat(i).Prepare()
	}
	if got := p.Wake(2); got != 2 {
		t.Fatalf("Wake(2): %d", got)
	}
	if got := p.Wake(10); got != 3 {
		t.Fatalf("Wake(10): %d", got)
	}
	if got := p.Wake(1); got != 0 {
		t.Fatalf("Wake(1): %d", got)
	}
	for _, i := range asleep {
		park(t, p.Seat(i), never, true)
	}
	for i := range seats {
		p.Seat(i).Prepare()
		park(t, p.Seat(i), 0, false)
	}
}

func TestPoolTakesTurns(t *testing.T) {
	p := newPool(t, 3)
	for i := range 6 {
		for s := range 3 {
			p.Seat(s).Prepare()
		}
		p.Wake(1)
		woken := -1
		for s := range 3 {
			if p.Seat(s).unpark() {
				if woken >= 0 {
					t.Fatal("woke two")
				}
				woken = s
			}
			if err := drainEventfd(p.Seat(s).fd, &p.Seat(s).drained); err != nil {
				t.Fatal(err)
			}
		}
		if woken != i%3 {
			t.Fatalf("turn %d: woke seat %d", i, woken)
		}
	}
}

func TestPoolCancelPassesTheWakeUpOn(t *testing.T) {
	p := newPool(t, 2)
	p.Seat(0).Prepare()
	p.Wake(1) // spent on seat 0 ...
	p.Seat(1).Prepare()
	p.Seat(0).Cancel() // ... which has found other work
	park(t, p.Seat(1), never, true)
}

func TestTryPopWake(t *testing.T) {
	p := newPool(t, 2)
	q := NewMPMC[int](4)
	q.TryPush(1)
	q.TryPush(2)
	p.Seat(1).Prepare()
	if v, ok := q.TryPopWake(p); !ok || v != 1 {
		t.Fatalf("got %d, %v", v, ok)
	}
	park(t, p.Seat(1), never, true)
	p.Seat(0).Prepare()
	if v, ok := q.TryPopWake(p); !ok || v != 2 {
		t.Fatalf("got %d, %v", v, ok)
	}
	park(t, p.Seat(0), 0, false) // nothing was left, nobody was woken
}

// TestPoolStress has workers sleep between entries; a lost wake-up would leave them asleep until a deadline that they
// report as a failure.
func TestPoolStress(t *testing.T) {
	const producers, workers, rounds = 2, 4, 1500
	p := newPool(t, workers)
	q := NewMPMC[int](64)
	var taken atomic.Int64
	total := int64(producers * rounds * 3)
	var wg sync.WaitGroup
	for range producers {
		wg.Go(func() {
			for range rounds {
				pushed := 0
				for pushed < 3 {
					if q.TryPush(pushed) {
						pushed++
					} else {
						runtime.Gosched()
					}
				}
				p.Wake(pushed)
			}
		})
	}
	for w := range workers {
		seat := p.Seat(w)
		wg.Go(func() {
			take := func() bool {
				if _, ok := q.TryPopWake(p); !ok {
					return false
				}
				if taken.Add(1) == total {
					p.Wake(workers) // lets the others see that it is over
				}
				return true
			}
			for taken.Load() < total {
				if take() {
					continue
				}
				seat.Prepare()
				if taken.Load() >= total {
					seat.Cancel()
					return
				}
				if _, ok := q.TryPopWake(p); ok {
					seat.Cancel()
					if taken.Add(1) == total {
						p.Wake(workers)
					}
					continue
				}
				if woken, err := seat.Park(nil, never); err != nil || !woken {
					t.Errorf("worker %d: woken %v, %v after %d entries", w, woken, err, taken.Load())
					return
				}
			}
		})
	}
	wg.Wait()
	if taken.Load() != total {
		t.Fatalf("took %d of %d", taken.Load(), total)
	}
}

func TestParkingDoesNotAllocate(t *testing.T) {
	p := newParker(t)
	pool := newPool(t, 4)
	fds := make([]unix.PollFd, 8)
	for i := range fds {
		fds[i].Fd = -1
	}
	for name, op := range map[string]func(){
		"wake, awake":  func() { p.Wake(); pool.Wake(1) },
		"cancel":       func() { p.Prepare(); p.Cancel() },
		"wake, parked": func() { p.Prepare(); p.Wake(); p.Park(fds, never) },
		"timeout":      func() { p.Prepare(); p.Park(fds, 0) },
		"pool":         func() { pool.Seat(2).Prepare(); pool.Wake(1); pool.Seat(2).Park(nil, never) },
	} {
		if got := testing.AllocsPerRun(100, op); got != 0 {
			t.Errorf("%s: %v allocations", name, got)
		}
	}
}

func BenchmarkParker(b *testing.B) {
	p := newParker(b)
	b.Run("wake, awake", func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			p.Wake()
		}
	})
	b.Run("prepare, cancel", func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			p.Prepare()
			p.Cancel()
		}
	})
	b.Run("prepare, wake, park", func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			p.Prepare()
			p.Wake()
			if _, err := p.Park(nil, never); err != nil {
				b.Fatal(err)
			}
		}
	})
}
