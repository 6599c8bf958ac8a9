package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/term"

	v1 "mover/api/v1"
	"mover/client"
	"mover/job"
)

func topCommand() *cli.Command {
	return &cli.Command{
		Name:  "top",
		Usage: "show what a node is doing: rails, pollers and jobs, again and again",
		Description: "A Ctrl-C ends it. Rates are over the time between two views, so that the first\n" +
			"has none; --once takes two.",
		Flags: append(serverFlags(),
			&cli.BoolFlag{Name: "once", Usage: "print one view and return"},
			&cli.DurationFlag{Name: "interval", Value: time.Second, Usage: "the time between views, 100ms to 1h"},
			&cli.IntFlag{Name: "jobs", Value: 20, Usage: "at most `N` jobs, 1 to 500"},
		),
		Action: func(c *cli.Context) error {
			if d := c.Duration("interval"); d < 100*time.Millisecond || d > time.Hour {
				return usagef("--interval: %v; allowed: 100ms to 1h", d)
			}
			if n := c.Int("jobs"); n < 1 || n > job.MaxPage {
				return usagef("--jobs: %d; allowed: 1 to %d", n, job.MaxPage)
			}
			return asking(top)(c)
		},
	}
}

// sight is a node at one moment.
type sight struct {
	at      time.Time
	version v1.Version
	peers   v1.Peers
	pollers v1.Pollers
	jobs    v1.JobList // that have not ended
}

func look(ctx context.Context, s *client.Client, jobs int) (v sight, err error) {
	v.at = time.Now()
	if v.version, err = s.Version(ctx); err != nil {
		return v, err
	}
	if v.peers, err = s.Peers(ctx); err != nil {
		return v, err
	}
	if v.pollers, err = s.Pollers(ctx); err != nil {
		return v, err
	}
	var states []job.State
	for _, state := range job.States() {
		if !state.Terminal() {
			states = append(states, state)
		}
	}
	v.jobs, err = s.List(ctx, client.ListOptions{States: states, Limit: jobs})
	return v, err
}

func top(c *cli.Context, s *client.Client) error {
	ctx, stop := untilInterrupt(c.Context)
	defer stop()
	f, isFile := c.App.Writer.(*os.File)
	redraw := isFile && term.IsTerminal(int(f.Fd())) && !c.Bool("once")
	tick := time.NewTicker(c.Duration("interval"))
	defer tick.Stop()
	var last *sight
	for {
		v, err := look(ctx, s, c.Int("jobs"))
		if ctx.Err() != nil {
			return nil // a Ctrl-C is how one leaves
		}
		if err != nil {
			return err
		}
		if !c.Bool("once") || last != nil {
			var b strings.Builder
			if redraw {
				b.WriteString("\x1b[H\x1b[2J") // home, and clear: see console_codes(4)
			}
			v.show(&b, last)
			if !redraw && !c.Bool("once") {
				b.WriteString("\n")
			}
			if _, err := io.WriteString(c.App.Writer, b.String()); err != nil || c.Bool("once") {
				return err
			}
		}
		last = &v
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// show writes v; before, if not nil, is an earlier one, for the rates.
func (v *sight) show(out io.Writer, before *sight) {
	fmt.Fprintf(out, "node %s, mover %s, up %s\n\n", v.version.Node, v.version.Version, v.at.Sub(v.version.StartedAt).Truncate(time.Second))
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "PEER\tRAIL\tSTATE\tLANES\tSENT\tRECEIVED")
	for _, p := range v.peers.Peers {
		if len(p.Rails) == 0 {
			fmt.Fprintf(w, "%s\t-\t%s\t-\t-\t-\n", p.Name, p.State)
		}
		for _, r := range p.Rails {
			sent, received := "-", "-"
			if old, seconds := before.rail(p.Name, r), v.since(before); old != nil {
				sent, received = rateText(old.SentBytes, r.SentBytes, seconds), rateText(old.ReceivedBytes, r.ReceivedBytes, seconds)
			}
			fmt.Fprintf(w, "%s\t%s/%d - %s/%d %s\t%s\t%d of %d\t%s\t%s\n", p.Name, r.LocalDevice, r.LocalPort, r.RemoteDevice, r.RemotePort, r.Provider, r.State, r.LanesUp, r.Lanes, sent, received)
		}
	}
	w.Flush()
	fmt.Fprintln(out)
	fmt.Fprintln(w, "POLLER\tCPU\tIDLE\tLANES\tBUSY\tCPU TIME\tLONGEST GAP")
	for _, p := range v.pollers.Pollers {
		cpu, busy, used := "-", "-", "-"
		if p.CPU != nil {
			cpu = fmt.Sprint(*p.CPU)
		}
		if old := before.poller(p.ID); old != nil && p.Steps >= old.Steps && p.EmptySteps >= old.EmptySteps {
			if steps := p.Steps - old.Steps; steps > 0 {
				busy = fmt.Sprintf("%.0f %%", 100*float64(steps-min(p.EmptySteps-old.EmptySteps, steps))/float64(steps))
			}
			if seconds := v.since(before); seconds > 0 {
				used = fmt.Sprintf("%.0f %%", 100*max(p.CPUSeconds-old.CPUSeconds, 0)/seconds)
			}
		}
		fmt.Fprintf(w, "%d\t%s\t%s\t%d\t%s\t%s\t%d us\n", p.ID, cpu, p.Idle, p.Lanes, busy, used, p.LongestGapMicro)
	}
	w.Flush()
	fmt.Fprintln(out)
	fmt.Fprintln(w, "JOB\tSTATE\tDONE\tRATE\tLEFT\tSOURCE\tDESTINATION")
	for _, s := range v.jobs.Jobs {
		rate, left := "-", "-"
		if s.Progress.RateBytesPerSecond > 0 {
			rate = bytesText(s.Progress.RateBytesPerSecond) + "/s"
		}
		if s.Progress.ETASeconds != nil {
			left = (time.Duration(*s.Progress.ETASeconds) * time.Second).String()
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", s.ID, stateText(s), doneText(s.State, s.Progress), rate, left, placeText(s.Spec.Source), placeText(s.Spec.Destination))
	}
	w.Flush()
	if v.jobs.NextPageToken != "" {
		fmt.Fprintln(out, "... and more")
	}
}

func (v *sight) since(before *sight) float64 {
	if before == nil {
		return 0
	}
	return v.at.Sub(before.at).Seconds()
}

// rail is the same rail in an earlier view, nil if it was not there.
func (v *sight) rail(peer string, of v1.Rail) *v1.Rail {
	if v == nil {
		return nil
	}
	for _, p := range v.peers.Peers {
		for i, r := range p.Rails {
			if p.Name == peer && r.LocalDevice == of.LocalDevice && r.LocalPort == of.LocalPort && r.RemoteDevice == of.RemoteDevice && r.RemotePort == of.RemotePort {
				return &p.Rails[i]
			}
		}
	}
	return nil
}

func (v *sight) poller(id int) *v1.Poller {
	if v == nil {
		return nil
	}
	for i, p := range v.pollers.Pollers {
		if p.ID == id {
			return &v.pollers.Pollers[i]
		}
	}
	return nil
}

// rateText is a rate in bits, as networks are measured. A counter that went
// back is of a new session.
func rateText(old, now uint64, seconds float64) string {
	if now < old || seconds <= 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f Gbit/s", float64(now-old)*8/1e9/seconds)
}
