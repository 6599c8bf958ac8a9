package main

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"
	"syscall"
	"time"

	"mover/client"
	"mover/job"
	"mover/lab/remote"
)

const (
	fileBytes     = 16 << 20
	fileWarmBytes = 1 << 20
	fileName      = "bench.bin"
	fileWarmName  = "warm.bin"
	rcopyPort     = "7427"
)

// fileSettings are the nodes' in file-rcopy: one rail, as rcopy uses, and a
// poller that spins. The rate lets 2.5 MB be in flight, a sixth of a second of
// an emulated rail, and not the 1 MiB of the lab's other nodes, which a guest
// that waits for a CPU lets run dry.
func fileSettings() Settings {
	return Settings{Set: map[string]any{"devices.names": []string{benchDevice}, "pollers.idle": "spin", "session.rail_rate": "4Gbit/s"}}
}

// readyFile compares a file job from a to b with rcopy: over the same rail,
// from tmpfs to tmpfs. rcopy checks and syncs nothing; mover's job is verified
// and durable.
//
// rcopy's time is from its client's start to its end, mover's from the submit
// to the answer that says succeeded, both seen from the lab. The servers of
// both run on; while rcopy is measured the nodes are stopped (SIGSTOP), since
// pollers that spin would take half of each guest's CPUs from it.
func readyFile(ctx context.Context, l *Lab) (comparison, error) {
	l.Step("starting the nodes and rcopy's server")
	if err := l.Both(func(n *Node) error { return n.StartMover(ctx, fileSettings()) }); err != nil {
		return comparison{}, err
	}
	f := &fileRace{lab: l}
	var err error
	if f.sum, err = l.A.Generate(ctx, path.Join(DataDir, fileName), fileBytes); err != nil {
		return comparison{}, err
	}
	if _, err := l.A.Generate(ctx, path.Join(DataDir, fileWarmName), fileWarmBytes); err != nil {
		return comparison{}, err
	}
	server, err := l.B.Start(l.life(), "rcopy", remote.Command{Args: []string{"rcopy", "-p", rcopyPort}, Dir: "/tmp"})
	if err != nil {
		return comparison{}, err
	}
	if err := l.B.awaitCM(ctx, rcopyPort, server); err != nil {
		return comparison{}, err
	}
	if _, err := f.move(ctx, 0); err != nil {
		return comparison{}, fmt.Errorf("mover, warm-up: %w", err)
	}
	if _, err := f.rcopy(ctx, 0); err != nil {
		return comparison{}, fmt.Errorf("rcopy, warm-up: %w", err)
	}
	return comparison{ours: f.move, theirs: f.rcopy, filesystem: "tmpfs", setting: "rcopy, not verified; mover: verified",
		end: func(ctx context.Context) error {
			f.profile(ctx)
			return errors.Join(f.nodes(ctx, syscall.SIGCONT), server.Signal(ctx, syscall.SIGKILL))
		},
	}, nil
}

// fileRace are the two sides of file-rcopy.
type fileRace struct {
	lab     *Lab
	sum     string // of the file
	stopped bool   // the nodes are
	last    job.ID // of the file's last job
}

// nodes stops both nodes, or lets them go on.
func (f *fileRace) nodes(ctx context.Context, signal syscall.Signal) error {
	if f.stopped == (signal == syscall.SIGSTOP) {
		return nil
	}
	f.stopped = !f.stopped
	return f.lab.Both(func(n *Node) error { return n.SignalMover(ctx, signal) })
}

// move runs a job, after a small one that has what a stop left of the session
// behind it, and returns its seconds.
func (f *fileRace) move(ctx context.Context, _ int) (float64, error) {
	if err := f.nodes(ctx, syscall.SIGCONT); err != nil {
		return 0, err
	}
	a := f.lab.A
	if _, err := f.job(ctx, fileWarmName); err != nil {
		return 0, fmt.Errorf("the job before: %w", err)
	}
	begin := time.Now()
	s, err := f.job(ctx, fileName)
	if err != nil {
		return 0, err
	}
	took := time.Since(begin).Seconds()
	a.lab.Note("mover's own figure: %.3f s", s)
	return took, f.arrived(ctx, path.Join(IncomingDir, fileName), path.Join(IncomingDir, fileWarmName))
}

// job moves a file and returns the seconds that the job says of itself.
func (f *fileRace) job(ctx context.Context, name string) (float64, error) {
	a := f.lab.A
	s, err := a.Submit(ctx, a.Send(name))
	if err != nil {
		return 0, err
	}
	if s, err = a.WaitSucceeded(ctx, s.ID); err != nil {
		return 0, err
	}
	f.last = s.ID
	if s.Result == nil || !s.Result.Verified || !s.Result.Durable {
		return 0, fmt.Errorf("the job is not verified and durable: %s", brief(s))
	}
	return s.Result.Seconds, nil
}

// profile shows how long the last job was in each state.
func (f *fileRace) profile(ctx context.Context) {
	if err := f.nodes(ctx, syscall.SIGCONT); err != nil {
		return
	}
	api, err := f.lab.A.API(ctx)
	if err != nil {
		return
	}
	page, err := api.Events(ctx, client.EventOptions{Job: &f.last, Limit: 100})
	if err != nil {
		f.lab.Note("the events of the last job: %v", err)
		return
	}
	var text []string
	for i, e := range page.Events {
		if i > 0 {
			text = append(text, fmt.Sprintf("%s %.3f s", page.Events[i-1].State, e.At.Sub(page.Events[i-1].At).Seconds()))
		}
	}
	f.lab.Step("   mover's last job was %s", strings.Join(text, ", "))
}

// rcopy copies the file with rcopy and returns the seconds.
func (f *fileRace) rcopy(ctx context.Context, _ int) (float64, error) {
	if err := f.nodes(ctx, syscall.SIGSTOP); err != nil {
		return 0, err
	}
	a, b := f.lab.A, f.lab.B
	to := path.Join(IncomingDir, "rcopy.bin")
	begin := time.Now()
	if _, err := a.Run(ctx, "rcopy", path.Join(DataDir, fileName), b.Address(benchRail)+":"+to, "-p", rcopyPort); err != nil {
		return 0, err
	}
	took := time.Since(begin).Seconds()
	return took, f.arrived(ctx, to)
}

// arrived compares a copy with the source, and removes it and what else is
// named.
func (f *fileRace) arrived(ctx context.Context, file string, others ...string) error {
	sum, err := f.lab.B.SHA256(ctx, file)
	if err != nil {
		return err
	}
	if sum != f.sum {
		return fmt.Errorf("%s is not the source: sha256 %s instead of %s", file, sum, f.sum)
	}
	_, err = f.lab.B.Run(ctx, append([]string{"rm", file}, others...)...)
	return err
}

// awaitCM waits until something listens on a port of the RDMA connection
// manager, which is no port of TCP's.
func (n *Node) awaitCM(ctx context.Context, port string, by *Background) error {
	return Await(ctx, "a listener of rdma_cm on port "+port+" of guest "+n.Name, func(ctx context.Context) (bool, string, error) {
		select {
		case <-by.Done():
			return false, "", fmt.Errorf("it ended: %s", by.Tail())
		default:
		}
		r, err := n.Remote().Run(ctx, remote.Command{Args: []string{"rdma", "resource", "show", "cm_id"}})
		return listensCM(string(r.Stdout), port), "cm_ids: " + strconv.Quote(string(r.Stdout)), err
	})
}

// listensCM looks for a listener in what `rdma resource show cm_id` prints.
func listensCM(text, port string) bool {
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		for i, word := range fields {
			if word == "src-addr" && i+1 < len(fields) && strings.HasSuffix(fields[i+1], ":"+port) && strings.Contains(line, "state LISTEN") {
				return true
			}
		}
	}
	return false
}
