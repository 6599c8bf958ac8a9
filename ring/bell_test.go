package ring

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"
)

func wait(t *testing.T, b *Bell, timeout time.Duration, want bool) {
	t.Helper()
	woken, err := b.Wait(t.Context(), timeout)
	if err != nil || woken != want {
		t.Fatalf("Wait: woken %v, %v; want %v", woken, err, want)
	}
}

func TestBell(t *testing.T) {
	b := NewBell()
	if b.Wake() {
		t.Fatal("woke a consumer that is awake")
	}
	b.Prepare()
	if !b.Wake() || b.Wake() {
		t.Fatal("not woken exactly once")
	}
	wait(t, b, never, true)
	b.Prepare()
	wait(t, b, 0, false)
	if b.Wake() {
		t.Fatal("a timeout left it parked")
	}
	// Two wake-ups that came too late cost one spurious return.
	for range 2 {
		b.Prepare()
		b.Wake()
		b.Cancel()
	}
	b.Prepare()
	wait(t, b, 0, true)
	b.Prepare()
	wait(t, b, time.Millisecond, false)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	b.Prepare()
	if _, err := b.Wait(ctx, never); !errors.Is(err, context.Canceled) || b.Wake() {
		t.Fatalf("cancelled: %v", err)
	}
	b.Prepare()
	if _, err := b.Wait(t.Context(), -1); !errors.Is(err, ErrNoDeadline) || b.Wake() {
		t.Fatalf("no deadline: %v", err)
	}
	var none *Bell
	if none.Wake() {
		t.Fatal("woke nobody")
	}
}

func TestBellStress(t *testing.T) {
	const entries = 10_000
	b := NewBell()
	tx, rx := NewSPSC[int](32)
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 0; i < entries; {
			if tx.Push(i) {
				b.Wake()
				i++
			} else {
				runtime.Gosched()
			}
		}
	})
	for want := 0; want < entries; {
		v, ok := rx.Pop()
		if !ok {
			b.Prepare()
			if v, ok = rx.Pop(); ok {
				b.Cancel()
			} else {
				wait(t, b, never, true)
				continue
			}
		}
		if v != want {
			t.Fatalf("got %d, want %d", v, want)
		}
		want++
	}
	wg.Wait()
}

func TestBellDoesNotAllocate(t *testing.T) {
	b := NewBell()
	ctx := t.Context()
	if got := testing.AllocsPerRun(100, func() { b.Prepare(); b.Wake(); b.Wait(ctx, never); b.Prepare(); b.Wait(ctx, 0) }); got != 0 {
		t.Errorf("%v allocations", got)
	}
}
