package main

import (
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestProgressIsNeverAbsurd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := moment{
			state:      rapid.SampledFrom([]string{"queued", "running", "publishing"}).Draw(t, "state"),
			done:       rapid.Int64().Draw(t, "done"),
			total:      rapid.Int64().Draw(t, "total"),
			rate:       rapid.Int64().Draw(t, "rate"),
			etaSeconds: rapid.Int64Range(-1, math.MaxInt64/int64(time.Second)).Draw(t, "eta"),
		}
		columns := rapid.IntRange(19, 300).Draw(t, "columns")
		if p := percent(m); p < 0 || p > 100 || p == 100 && m.done < m.total {
			t.Fatalf("%d %%", p)
		}
		if got := clip(bar(m, columns), columns); len(got) > columns {
			t.Fatalf("%d columns: %q", columns, got)
		}
		if s := line(m, true); strings.Contains(s, "-") {
			t.Fatalf("negative: %q", s)
		}
	})
}

func TestProgressLines(t *testing.T) {
	var out strings.Builder
	now := time.Unix(0, 0)
	v := &progressView{out: &out, now: func() time.Time { return now }}
	v.show(moment{state: "queued", etaSeconds: -1})
	v.show(moment{state: "running", total: 1 << 30, etaSeconds: -1, attempt: 1})
	v.show(moment{state: "running", done: 1 << 20, total: 1 << 30, rate: 5 << 20, etaSeconds: 204, attempt: 1}) // too soon
	now = now.Add(time.Second)
	v.show(moment{state: "running", done: 512 << 20, total: 1 << 30, rate: 5 << 20, etaSeconds: 102, attempt: 1})
	const lost = "PEER_UNREACHABLE: no answer"
	v.show(moment{state: "queued", total: 1 << 30, etaSeconds: -1, attempt: 1, reason: lost, wait: 1100 * time.Millisecond})
	v.show(moment{state: "preparing", etaSeconds: -1, attempt: 2, reason: lost})
	v.show(moment{state: "queued", etaSeconds: -1, attempt: 2, reason: lost, wait: 2 * time.Second})
	v.show(moment{state: "queued", etaSeconds: -1, attempt: 2, reason: "PEER_REFUSED: full"})
	const want = `queued
running      0 %  0 B of 1.00 GiB
running     50 %  512 MiB of 1.00 GiB  5.00 MiB/s  1m42s left
queued       0 %  0 B of 1.00 GiB  next attempt in 2s  attempt 1  (last: PEER_UNREACHABLE: no answer)
preparing   attempt 2
queued      next attempt in 2s  attempt 2
queued      attempt 2  (last: PEER_REFUSED: full)
`
	if out.String() != want {
		t.Errorf("got:\n%swant:\n%s", out.String(), want)
	}
}

func TestProgressBar(t *testing.T) {
	var out strings.Builder
	v := &progressView{out: &out, now: time.Now, width: func() int { return 80 }}
	v.show(moment{state: "running", done: 512 << 20, total: 1 << 30, etaSeconds: -1, attempt: 1})
	v.say("canceling")
	want := "\r[" + strings.Repeat("=", 19) + strings.Repeat(" ", 20) + "] running     50 %  512 MiB of 1.00 GiB\x1b[K\ncanceling\n"
	if out.String() != want {
		t.Errorf("got %q\nwant %q", out.String(), want)
	}
}

func TestNarrowBarDropsWordsFirst(t *testing.T) {
	m := moment{state: "running", done: 512 << 20, total: 1 << 30, rate: 5 << 20, etaSeconds: 102}
	for columns, want := range map[int]string{
		79: "[=====     ] running     50 %  512 MiB of 1.00 GiB  5.00 MiB/s  1m42s left",
		70: "[=====     ] running     50 %  512 MiB of 1.00 GiB  5.00 MiB/s",
		50: "[=====     ] running     50 %  512 MiB of 1.00 GiB",
		49: "running     50 %  512 MiB of 1.00 GiB  5.00 MiB/s",
		40: "running     50 %  512 MiB of 1.00 GiB",
	} {
		// How long the bar is, is not the point.
		if got := bar(m, columns); words(got) != words(want) || len(got) > columns {
			t.Errorf("%d columns: %q, want %q", columns, got, want)
		}
	}
}

// words is a line without the bar's inside.
func words(s string) string {
	if _, after, ok := strings.Cut(s, "]"); ok {
		return "[]" + after
	}
	return s
}

func TestBytesText(t *testing.T) {
	for n, want := range map[int64]string{
		-1: "0 B", 0: "0 B", 999: "999 B", 1000: "0.98 KiB", 1023: "1.00 KiB", 1 << 20: "1.00 MiB", 12345678: "11.8 MiB",
		999 << 20: "999 MiB", 1<<63 - 1: "8192 PiB",
	} {
		if got := bytesText(n); got != want {
			t.Errorf("bytesText(%d) = %q, want %q", n, got, want)
		}
	}
}

func TestProgressCountsItems(t *testing.T) {
	var out strings.Builder
	now := time.Unix(0, 0)
	v := &progressView{out: &out, now: func() time.Time { return now }}
	m := moment{state: "running", done: 5, total: 10, items: 1, itemsDone: 0, etaSeconds: -1, attempt: 1}
	v.show(m)
	m.items, m.itemsDone = 2000, 3
	now = now.Add(lineEvery)
	v.show(m) // no byte more, but an item
	want := "running     50 %  5 B of 10 B\nrunning     50 %  5 B of 10 B  3 of 2000 items\n"
	if out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}
