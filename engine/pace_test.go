package engine

import (
	"math"
	"math/big"
	"testing"

	"pgregory.net/rapid"
)

// TestPacer is the bucket, step by step.
func TestPacer(t *testing.T) {
	const chunk = 4096
	p := NewPacer(1000) // holds a chunk, which is more than 100 ms of it
	var w payer
	at := int64(5 * s1)
	step := func(now int64, wantOK bool, wantNext int64) {
		t.Helper()
		if ok, next := p.take(now, &w, chunk); ok != wantOK || next != wantNext {
			t.Fatalf("at %d: %v, %d; want %v, %d", now-at, ok, next-at, wantOK, wantNext-at)
		}
	}
	step(at, true, at)
	step(at, false, at+ms)                          // empty; a byte is there after 1 ms
	step(at+ms-1, false, at+2*ms-1)                 // not yet, and looked at no sooner than paceStep
	step(at+ms, true, at+ms)                        // into debt
	step(at+ms, false, at+101*ms)                   // for 4.096 s, looked at every paceLook
	step(at+ms+4095*ms, false, at+4097*ms)          // the debt is paid off, and 0 is not positive
	step(at+ms+4096*ms, true, at+ms+4096*ms)        // so this late
	step(at+3600*s1, true, at+3600*s1)              // it was full long since
	step(at+3600*s1, false, at+3600*s1+ms)          // and holds no more than a chunk
	step(at+3599*s1, false, at+3600*s1-s1+paceLook) // a time that is behind adds nothing
}

// TestPacerRates: rates of all sizes come out exactly, and without a limit
// everything goes.
func TestPacerRates(t *testing.T) {
	for _, rate := range []int64{1 << 10, 999, 1e6, 123456789, 50e9, math.MaxInt64} {
		p := NewPacer(rate)
		var w payer
		chunk := int64(2 << 20)
		now, sent := int64(1), int64(0)
		const looks = 2000
		for range looks {
			ok, next := p.take(now, &w, chunk)
			if ok {
				sent += chunk
				continue
			}
			if next <= now || next > now+paceLook {
				t.Fatalf("rate %d: next look after %d ns", rate, next-now)
			}
			now = next
		}
		free := max(chunk, rate/10)
		want := new(big.Int).Mul(big.NewInt(rate), big.NewInt(now-1))
		want.Div(want, big.NewInt(1e9))
		most := new(big.Int).Add(want, big.NewInt(free))
		if got := big.NewInt(sent - chunk); got.Cmp(most) > 0 {
			t.Errorf("rate %d: %d bytes in %d ns", rate, sent, now)
		}
		if got := big.NewInt(sent + chunk + rate/500); got.Cmp(want) < 0 { // looks are a paceStep apart
			t.Errorf("rate %d: only %d bytes in %d ns", rate, sent, now)
		}
	}
	for _, rate := range []int64{0, -1} {
		p := NewPacer(rate)
		for range 1000 {
			if ok, next := p.take(1, new(payer), math.MaxInt32); !ok || next != 1 {
				t.Fatal("limited")
			}
		}
		if p.Rate() != 0 {
			t.Error(p.Rate())
		}
	}
}

// TestPacerSetRate: a limit comes, changes and goes while it is used.
func TestPacerSetRate(t *testing.T) {
	const chunk = 1 << 20
	p, w := NewPacer(0), payer{}
	now := int64(7)
	for range 100 {
		if ok, _ := p.take(now, &w, chunk); !ok {
			t.Fatal("limited")
		}
	}
	drain := func() (n int) {
		for ok := true; ok; {
			if ok, _ = p.take(now, &w, chunk); ok {
				n++
			}
		}
		return n
	}
	p.SetRate(10 << 20)
	if n := drain(); n != 1 {
		t.Errorf("%d chunks, want what the bucket holds", n)
	}
	now += 100 * ms
	if n := drain(); n != 1 {
		t.Errorf("%d chunks after 100 ms at 10 a second", n)
	}
	p.SetRate(1 << 10) // the bucket is empty: a chunk takes 1024 s from now on
	now += s1
	if n := drain(); n != 1 {
		t.Errorf("%d chunks", n)
	}
	if ok, _ := p.take(now+1000*s1, &w, chunk); ok {
		t.Error("before the debt is paid off")
	}
	now += 1000 * s1
	p.SetRate(1 << 30) // 24 KiB of debt are left
	now += ms / 2
	if n := drain(); n != 1 {
		t.Errorf("%d chunks after half a ms at 1000 a second", n)
	}
	if p.SetRate(0); len(p.queue) != 0 || w.queued || p.Rate() != 0 {
		t.Error("somebody waits without a limit")
	}
	if ok, _ := p.take(now, &w, chunk); !ok {
		t.Error("limited")
	}
	p.SetRate(1 << 10)
	if n := drain(); n != 1 { // a new bucket, without the old debt
		t.Errorf("%d chunks", n)
	}
}

// TestPacerTurns: those who wait are served in turn; one who has left, or does
// not look any more, is passed by.
func TestPacerTurns(t *testing.T) {
	const chunk = 1 << 20
	p := NewPacer(10 << 20)
	var a, b, c payer
	now := int64(1)
	ok := func(who *payer) bool { ok, _ := p.take(now, who, chunk); return ok }
	if !ok(&a) || ok(&b) || ok(&c) || ok(&a) {
		t.Fatal("one chunk, for the first")
	}
	now += 10 * ms
	if ok(&c) || ok(&a) || !ok(&b) || ok(&c) {
		t.Fatal("b was next")
	}
	now += 100 * ms
	p.leave(&c) // its item was canceled
	if !ok(&a) || ok(&b) || ok(&c) {
		t.Fatal("a was next")
	}
	now += 200 * ms // b does not look
	if !ok(&c) {
		t.Error("c waits for b, which is gone")
	}
	if ok(&a) {
		t.Error("a chunk too many")
	}
	// ready takes nothing and keeps no place.
	now += 100 * ms
	for range 3 {
		if ok, _ := p.ready(now, &a, chunk); !ok {
			t.Fatal("not ready")
		}
	}
	if !ok(&a) || ok(&a) {
		t.Error("one chunk")
	}
	p.giveBack(chunk)
	if !ok(&a) {
		t.Error("what was given back is not there")
	}
}

// TestPacerNever: whoever asks, whenever and for how much: in no time between
// two chunks goes more than the rate, what the bucket holds, and one chunk. And
// those who look when they are told to share the rate among them.
func TestPacerNever(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate := rapid.OneOf(rapid.Int64Range(1, 1<<14), rapid.Int64Range(1<<14, 1<<32), rapid.Int64Range(1<<32, 1<<40)).Draw(t, "rate")
		chunk := rapid.Int64Range(1, 16<<20).Draw(t, "chunk")
		p := NewPacer(rate)
		who := make([]payer, rapid.IntRange(1, 4).Draw(t, "payers"))
		type grant struct{ at, bytes int64 }
		var grants []grant
		now := int64(0)
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			now += rapid.OneOf(rapid.Int64Range(0, 1000), rapid.Int64Range(0, 10*ms), rapid.Int64Range(0, 100*s1)).Draw(t, "passed")
			w := &who[rapid.IntRange(0, len(who)-1).Draw(t, "who")]
			at := max(0, now-rapid.Int64Range(0, 1000).Draw(t, "behind"))
			bytes := rapid.Int64Range(1, chunk).Draw(t, "bytes")
			switch rapid.IntRange(0, 9).Draw(t, "op") {
			case 0:
				p.leave(w)
			case 1:
				p.ready(at, w, bytes)
			case 2:
				if ok, _ := p.take(at, w, bytes); ok {
					p.giveBack(bytes)
				}
			default:
				if ok, next := p.take(at, w, bytes); ok {
					grants = append(grants, grant{now, bytes})
				} else if next <= at {
					t.Fatalf("look again %d ns ago", at-next)
				}
			}
		}
		for i := range grants {
			sum := int64(0)
			for _, g := range grants[i:] {
				sum += g.bytes
				most := float64(rate)*float64(g.at-grants[i].at+1000)/1e9 + float64(max(chunk, rate/10)) + float64(chunk)
				if float64(sum) > most*(1+1e-9)+1 {
					t.Fatalf("%d bytes in %d ns, at most %.0f", sum, g.at-grants[i].at, most)
				}
			}
		}
	})
}

// TestPacerShares: sessions that look when they are told to, some always later
// than others, use up the rate and have equal shares of it.
func TestPacerShares(t *testing.T) {
	for _, c := range []struct {
		rate, chunk int64
		late        []int64
	}{
		{1 << 20, 4096, []int64{0}},
		{1 << 20, 2 << 20, []int64{0, 3, 2 * ms}},
		{97484313, 4096, []int64{0, 3000}}, // B looks when A has just emptied the bucket
		{97484313, 65536, []int64{0, 3000, 70 * us, ms, 3 * ms}},
		{1e9, 1 << 20, []int64{0, 0, 0, 0, 0}},
		{20e9, 2 << 20, []int64{0, 3 * ms}},
	} {
		n := len(c.late)
		p := NewPacer(c.rate)
		who, next, sent := make([]payer, n), make([]int64, n), make([]int64, n)
		total, now := int64(0), int64(0)
		for now < 20*s1 {
			k := 0
			for i := range next {
				if next[i] < next[k] {
					k = i
				}
			}
			now = next[k]
			ok, at := true, int64(0)
			for ok {
				if ok, at = p.take(now, &who[k], c.chunk); ok {
					sent[k] += c.chunk
					total += c.chunk
				}
			}
			next[k] = at + c.late[k]
		}
		burst := max(c.chunk, c.rate/10)
		if want := int64(float64(c.rate) * float64(now) / 1e9); total < want-want/20-c.chunk || total > want+burst+c.chunk {
			t.Errorf("%+v: %d bytes, want %d", c, total, want)
		}
		for i := range sent {
			if fair := total / int64(n); sent[i] < fair-fair/10-burst-c.chunk {
				t.Errorf("%+v: %v are no equal shares", c, sent)
				break
			}
		}
	}
}
