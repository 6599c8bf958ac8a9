package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/term"
)

// moment is a job at one moment, as far as it is shown.
type moment struct {
	state       string
	done, total int64 // bytes; total is 0 until it is known
	itemsDone   int64
	items       int64 // 0 until it is known
	rate        int64 // bytes per second
	etaSeconds  int64 // -1 when unknown
	attempt     int
	reason      string        // why the last attempt ended, "" if it did not
	wait        time.Duration // until the next attempt, 0 when none is waited for
}

// A progressView shows a job's progress: a bar that is redrawn on a terminal,
// lines elsewhere. It belongs to one goroutine.
type progressView struct {
	out      io.Writer
	width    func() int // columns of the terminal; nil when there is none
	now      func() time.Time
	last     moment
	lastLine time.Time
	drawn    bool // a bar stands on the current line
}

// newProgressView shows on out, with a bar if out is a terminal.
func newProgressView(out io.Writer) *progressView {
	v := &progressView{out: out, now: time.Now}
	if f, isFile := out.(*os.File); isFile && term.IsTerminal(int(f.Fd())) {
		v.width = func() int {
			// A terminal that nobody told its size says 0: see ioctl_tty(2).
			if columns, _, err := term.GetSize(int(f.Fd())); err == nil && columns > 0 {
				return columns
			}
			return 80
		}
	}
	return v
}

// lineEvery is how often a line is written when nothing but the numbers
// changed.
const lineEvery = time.Second

// show shows m.
func (v *progressView) show(m moment) {
	changed := m.state != v.last.state || m.attempt != v.last.attempt || m.reason != v.last.reason
	if v.width != nil {
		if changed && m.reason != "" && m.reason != v.last.reason {
			v.say("attempt %d ended: %s", m.attempt, m.reason)
		}
		columns := max(v.width(), 20) - 1 // the last column may wrap
		fmt.Fprintf(v.out, "\r%s\x1b[K", clip(bar(m, columns), columns))
		v.drawn = true
	} else if changed || (m.done != v.last.done || m.itemsDone != v.last.itemsDone) && v.now().Sub(v.lastLine) >= lineEvery {
		// A reason that was said is not said again: it is long.
		fmt.Fprintln(v.out, line(m, m.reason != v.last.reason))
		v.lastLine = v.now()
	}
	v.last = m
}

// say writes a line of its own, above the bar if there is one.
func (v *progressView) say(format string, args ...any) {
	v.end()
	fmt.Fprintf(v.out, format+"\n", args...)
}

// end leaves the bar's line, so that what follows begins a new one.
func (v *progressView) end() {
	if v.drawn {
		fmt.Fprintln(v.out)
		v.drawn = false
	}
}

// percent is 0 to 100, and 100 only when everything is there.
func percent(m moment) int64 {
	if m.total <= 0 || m.done <= 0 {
		return 0
	}
	if m.done >= m.total {
		return 100
	}
	return int64(float64(m.done) / float64(m.total) * 100)
}

// texts are m in words, from all there is to what matters most.
func texts(m moment) []string {
	s := fmt.Sprintf("%-10s", m.state)
	if m.total > 0 {
		s += fmt.Sprintf(" %3d %%  %s of %s", percent(m), bytesText(min(m.done, m.total)), bytesText(m.total))
	}
	if m.items > 1 {
		s += fmt.Sprintf("  %d of %d items", min(m.itemsDone, m.items), m.items)
	}
	if m.wait > 0 {
		s += "  next attempt in " + wholeSeconds(m.wait)
	}
	all := []string{s}
	if m.total > 0 && m.rate > 0 {
		s += "  " + bytesText(m.rate) + "/s"
		all = append(all, s)
	}
	if m.etaSeconds >= 0 && m.done < m.total {
		all = append(all, s+"  "+(time.Duration(m.etaSeconds)*time.Second).String()+" left")
	}
	slices.Reverse(all)
	return all
}

// wholeSeconds rounds up: what is left is never shown as nothing.
func wholeSeconds(d time.Duration) string {
	return (d.Truncate(time.Second) + time.Second*time.Duration(min(d%time.Second, 1))).String()
}

func line(m moment, withReason bool) string {
	s := texts(m)[0]
	if m.attempt > 1 || m.reason != "" {
		s += fmt.Sprintf("  attempt %d", m.attempt)
	}
	if withReason && m.reason != "" {
		s += "  (last: " + m.reason + ")"
	}
	return strings.TrimRight(s, " ")
}

// bar draws m into so many columns. Where they are few, the time left and the
// rate give way before the bar does.
func bar(m moment, columns int) string {
	all := texts(m)
	for _, text := range all {
		room := min(columns-len(text)-3, 40)
		if room < 10 || m.total <= 0 {
			continue
		}
		full := int(percent(m)) * room / 100
		return "[" + strings.Repeat("=", full) + strings.Repeat(" ", room-full) + "] " + text
	}
	for _, text := range all {
		if len(text) <= columns {
			return text
		}
	}
	return all[len(all)-1]
}

// clip shortens text of single-width characters to a line.
func clip(s string, columns int) string {
	if len(s) > columns {
		return s[:columns]
	}
	return s
}

// bytesText is for people: three significant digits.
func bytesText(n int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB"}
	value, i := float64(max(n, 0)), 0
	for value >= 999.5 && i < len(units)-1 {
		value /= 1024
		i++
	}
	switch {
	case i == 0 || value >= 99.95:
		return fmt.Sprintf("%.0f %s", value, units[i])
	case value >= 9.995:
		return fmt.Sprintf("%.1f %s", value, units[i])
	}
	return fmt.Sprintf("%.2f %s", value, units[i])
}
