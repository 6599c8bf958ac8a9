package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"mover/job"
)

// cancelWithin bounds the request that cancels a job.
const cancelWithin = 10 * time.Second

// follow shows a job's progress until it ends. cancels: a Ctrl-C cancels the
// job; without, it only ends the watching.
func follow(ctx context.Context, out io.Writer, s server, id job.ID, cancels bool) error {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM)
	defer signal.Stop(signals)
	return watch(ctx, s, id, cancels, signals, newProgressView(out))
}

// untilInterrupt is ctx until a Ctrl-C or SIGTERM.
func untilInterrupt(ctx context.Context) (context.Context, context.CancelFunc) {
	return signal.NotifyContext(ctx, unix.SIGINT, unix.SIGTERM)
}

// An ending is what client.Wait returned.
type ending struct {
	snapshot job.Snapshot
	err      error
}

func watch(parent context.Context, s server, id job.ID, cancels bool, signals <-chan os.Signal, view *progressView) error {
	defer view.end()
	ctx, stop := context.WithCancel(parent)
	views := make(chan job.Snapshot)
	ended := make(chan ending, 1)
	go func() {
		last, err := s.Wait(ctx, id, func(next job.Snapshot) {
			select {
			case views <- next:
			case <-ctx.Done():
			}
		})
		ended <- ending{last, err}
	}()
	defer stop() // Wait returns soon after; ended has room for what it says
	canceling := false
	for {
		select {
		case next := <-views:
			view.show(momentOf(next))
		case e := <-ended:
			if e.err != nil {
				return withExit(fmt.Errorf("job %s may go on, but cannot be watched: %w", id, e.err))
			}
			view.end()
			return outcome(view, e.snapshot)
		case <-signals:
			switch {
			case canceling:
				return &exitError{code: exitInterrupted, err: fmt.Errorf("left before job %s was canceled; it will be", id)}
			case !cancels:
				return &exitError{code: exitInterrupted, err: fmt.Errorf("stopped watching job %s, which goes on", id)}
			}
			canceling = true
			view.say("canceling job %s; Ctrl-C again leaves without waiting", id)
			if err := cancelJob(parent, s, id); err != nil {
				return err
			}
		}
	}
}

func cancelJob(parent context.Context, s server, id job.ID) error {
	ctx, done := context.WithTimeout(parent, cancelWithin)
	defer done()
	if _, err := s.Cancel(ctx, id); err != nil {
		return withExit(fmt.Errorf("job %s could not be canceled, and may go on: %w", id, err))
	}
	return nil
}

func momentOf(s job.Snapshot) moment {
	m := moment{
		state: string(s.State), done: s.Progress.BytesDone, total: s.Progress.BytesTotal,
		rate: s.Progress.RateBytesPerSecond, etaSeconds: -1, attempt: s.Attempts,
		itemsDone: s.Progress.ItemsDone, items: s.Progress.ItemsTotal,
	}
	if s.Progress.ETASeconds != nil {
		m.etaSeconds = *s.Progress.ETASeconds
	}
	if s.LastReason != nil {
		m.reason = string(s.LastReason.Code) + ": " + s.LastReason.Detail
	}
	if s.State == job.Queued && s.NextAttemptAt != nil {
		m.wait = max(time.Until(*s.NextAttemptAt), 0)
	}
	if s.State.Terminal() {
		m.reason = "" // outcome says it
	}
	return m
}

// outcome says how a job ended, and with which exit code.
func outcome(view *progressView, s job.Snapshot) error {
	err := endingError(s)
	if err == nil {
		view.say("%s", successText(s))
	}
	return err
}

// endingError is nil for a job that succeeded, and otherwise has the exit code
// of how it ended.
func endingError(s job.Snapshot) error {
	switch s.State {
	case job.Succeeded:
		return nil
	case job.Canceled:
		return &exitError{code: exitCanceled, err: fmt.Errorf("job %s was canceled", s.ID)}
	}
	why := ""
	if s.LastReason != nil {
		why = ": " + string(s.LastReason.Code) + ": " + s.LastReason.Detail
	}
	tries := ""
	if s.Attempts > 1 {
		tries = fmt.Sprintf(" after %d attempts", s.Attempts)
	}
	if r := s.Result; s.State == job.Partial && r != nil {
		tries += fmt.Sprintf(" (%s failed, %d published; mover jobs items --state failed %s lists them)", counted(r.ItemsFailed, "item"), r.Items, s.ID)
	}
	return &exitError{code: exitFailed, err: fmt.Errorf("job %s ended %s%s%s", s.ID, s.State, tries, why)}
}

// counted is a number of things in words: "1 item", "2 items".
func counted(n int64, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

func successText(s job.Snapshot) string {
	to := placeText(s.Spec.Destination)
	r := s.Result
	if r == nil {
		return "succeeded: " + to
	}
	if r.Skipped {
		return "skipped: " + to + " exists"
	}
	text := "succeeded: " + to
	if r.Items > 1 {
		text += ", " + counted(r.Items, "item")
	}
	if r.ItemsSkipped > 0 {
		text += fmt.Sprintf(" (and %d skipped)", r.ItemsSkipped)
	}
	text += fmt.Sprintf(", %s in %.2f s", bytesText(r.Bytes), r.Seconds)
	if r.Seconds > 0 {
		text += fmt.Sprintf(" (%s/s)", bytesText(int64(float64(r.Bytes)/r.Seconds)))
	}
	if r.Verified {
		text += ", verified"
	} else {
		text += ", NOT verified"
	}
	switch {
	case s.Spec.Destination.Buffer != "": // memory: nothing to sync
	case r.Durable:
		text += ", durable"
	default:
		text += ", NOT synced to disk"
	}
	if slices.Contains(r.Providers, "soft") {
		text += ", over software verbs"
	}
	return text
}
