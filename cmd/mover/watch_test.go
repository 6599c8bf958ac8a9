package main

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"mover/client"
	"mover/job"
)

// scripted shows one state after another; the last one stays until the job is
// canceled. An err ends the watching after them.
type scripted struct {
	server
	states   []job.State
	err      error
	once     sync.Once
	canceled chan struct{}
}

func (s *scripted) Wait(ctx context.Context, _ job.ID, show func(job.Snapshot)) (job.Snapshot, error) {
	for _, state := range s.states {
		next := job.Snapshot{State: state, LastReason: &job.Reason{Code: "NO_SPACE", Detail: "disk full"}}
		show(next)
		if state.Terminal() {
			return next, nil
		}
	}
	if s.err != nil {
		return job.Snapshot{}, s.err
	}
	select {
	case <-s.canceled:
		return job.Snapshot{State: job.Canceled}, nil
	case <-ctx.Done():
		return job.Snapshot{}, ctx.Err()
	}
}

func (s *scripted) Cancel(context.Context, job.ID) (job.Snapshot, error) {
	s.once.Do(func() { close(s.canceled) })
	return job.Snapshot{State: job.Canceling}, nil
}

func TestWatchEndsWithTheJob(t *testing.T) {
	lost := &client.UnreachableError{Server: "here", Err: errors.New("connection refused")}
	denied := &client.Error{Status: 401, Detail: "no such token"}
	forgotten := &client.Error{Status: 404, Detail: "gone"}
	for _, c := range []struct {
		name    string
		s       *scripted
		signals int
		cancels bool
		code    int
		want    string
	}{
		{"succeeds", &scripted{states: []job.State{job.Running, job.Succeeded}}, 0, true, exitOK, ""},
		{"fails", &scripted{states: []job.State{job.Running, job.Failed}}, 0, true, exitFailed, "ended failed: NO_SPACE: disk full"},
		{"expires", &scripted{states: []job.State{job.Expired}}, 0, true, exitFailed, "ended expired"},
		{"partial", &scripted{states: []job.State{job.Partial}}, 0, true, exitFailed, "ended partial"},
		{"canceled by another", &scripted{states: []job.State{job.Canceled}}, 0, true, exitCanceled, "was canceled"},
		{"the node stays away", &scripted{states: []job.State{job.Running}, err: lost}, 0, true, exitUnreachable, "may go on"},
		{"the token is revoked", &scripted{err: denied}, 0, true, exitUnreachable, "no such token"},
		{"the job is forgotten", &scripted{err: forgotten}, 0, true, exitFailed, "cannot be watched: gone"},
		{"Ctrl-C cancels", &scripted{states: []job.State{job.Running}}, 1, true, exitCanceled, "was canceled"},
		{"Ctrl-C of a mere watcher", &scripted{states: []job.State{job.Running}}, 1, false, exitInterrupted, "which goes on"},
	} {
		c.s.canceled = make(chan struct{})
		signals := make(chan os.Signal, 2)
		for range c.signals {
			signals <- unix.SIGINT
		}
		var out strings.Builder
		err := watch(t.Context(), c.s, job.ID{}, c.cancels, signals, &progressView{out: &out, now: time.Now})
		code := exitOK
		var e *exitError
		if errors.As(err, &e) {
			code = e.code
		} else if err != nil {
			code = exitFailed
		}
		if code != c.code || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: exit %d, %v; want %d, %q", c.name, code, err, c.code, c.want)
		}
		canceled := false
		select {
		case <-c.s.canceled:
			canceled = true
		default:
		}
		if canceled != (c.name == "Ctrl-C cancels") {
			t.Errorf("%s: canceled is %v", c.name, canceled)
		}
	}
}

// silent never answers and takes a cancel without ending the job.
type silent struct{ server }

func (silent) Wait(ctx context.Context, _ job.ID, _ func(job.Snapshot)) (job.Snapshot, error) {
	<-ctx.Done()
	return job.Snapshot{}, ctx.Err()
}

func (silent) Cancel(context.Context, job.ID) (job.Snapshot, error) { return job.Snapshot{}, nil }

func TestSecondInterruptLeaves(t *testing.T) {
	signals := make(chan os.Signal, 2)
	signals <- unix.SIGINT
	signals <- unix.SIGINT
	var out strings.Builder
	err := watch(t.Context(), silent{}, job.ID{}, true, signals, &progressView{out: &out, now: time.Now})
	var e *exitError
	if !errors.As(err, &e) || e.code != exitInterrupted {
		t.Errorf("%v", err)
	}
	if !strings.Contains(out.String(), "canceling job") {
		t.Errorf("does not say that it cancels: %q", out.String())
	}
}
