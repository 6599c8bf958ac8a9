package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"mover/lab/remote"
)

// scenario is one proof.
type scenario struct {
	name     string        // of files too: a-z, 0-9, -
	ci       bool          // one of the bounded part that CI runs
	deadline time.Duration // generous: emulated, on a machine with other work
	// prepare, if not nil, is done on the host before the guests boot, such as
	// building a test program.
	prepare func(ctx context.Context, h host) error
	// run returns nil if what it is to prove is so. What it starts ends with
	// ctx at the latest; rails need not be mended, nodes not be stopped.
	run func(ctx context.Context, l *Lab) error
}

// scenarios are all there are, in the order in which they run.
func scenarios() []scenario {
	return slices.Concat(
		verbsScenarios(),
		conformanceScenarios(),
		demoScenarios(),
		faultScenarios(),
	)
}

// choose returns the scenarios whose name the pattern matches, or, if it is
// empty, those of CI, or all.
func choose(all []scenario, pattern string, full bool) ([]scenario, error) {
	re, err := regexp.Compile("^(?:" + pattern + ")$")
	if err != nil {
		return nil, fmt.Errorf("-run: %w", err)
	}
	var chosen []scenario
	for _, s := range all {
		if pattern == "" && (full || s.ci) || pattern != "" && re.MatchString(s.name) {
			chosen = append(chosen, s)
		}
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("-run %s: no scenario has such a name; see `go run ./lab list`", pattern)
	}
	return chosen, nil
}

// runner runs scenarios and boots guests as needed.
type runner struct {
	host host
	lab  *Lab // nil before the first boot, or after guests were lost
}

// runAll runs the scenarios one after the other; one that fails does not keep
// the next from running. The error is about the lab, not about a scenario.
func (r *runner) runAll(ctx context.Context, chosen []scenario) (results []result, err error) {
	defer func() {
		if r.lab != nil {
			err = errors.Join(err, r.lab.close())
		}
	}()
	for _, s := range chosen {
		if s.prepare == nil {
			continue
		}
		limited, cancel := context.WithTimeout(ctx, s.deadline)
		err := s.prepare(limited, r.host)
		cancel()
		if err != nil {
			return nil, fmt.Errorf("prepare %s: %w", s.name, err)
		}
	}
	for _, s := range chosen {
		if ctx.Err() != nil {
			return results, context.Cause(ctx)
		}
		var result result
		for stretch := int64(1); stretch <= mostStretch; stretch *= 2 {
			if result, err = r.one(ctx, s, stretch); err != nil {
				return results, err
			}
			if !result.tooSoon {
				break
			}
		}
		results = append(results, result)
	}
	return results, nil
}

// ready sees to it that both guests run, as new.
func (r *runner) ready(ctx context.Context) error {
	if r.lab != nil && r.lab.alive() {
		limited, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		err := r.lab.Both(func(n *Node) error { return n.Reset(limited) })
		if err == nil || ctx.Err() != nil {
			return err
		}
		fmt.Fprintf(r.host.stdout, "lab: booting again: %v\n", err)
	}
	if r.lab != nil {
		if err := r.lab.close(); err != nil {
			fmt.Fprintf(r.host.stdout, "lab: %v\n", err)
		}
		r.lab = nil
	}
	begin := time.Now()
	l, err := boot(ctx, r.host)
	if err != nil {
		return err
	}
	r.lab = l
	fmt.Fprintf(r.host.stdout, "lab: two guests with Linux %s and two rails, up in %.0f s\n", l.A.guest.Kernel(), time.Since(begin).Seconds())
	return nil
}

func (r *runner) one(ctx context.Context, s scenario, stretch int64) (result, error) {
	if err := r.ready(ctx); err != nil {
		return result{}, err
	}
	l := r.lab
	l.stretch = stretch
	log, err := newScenarioLog(r.host, s.name)
	if err != nil {
		return result{}, err
	}
	defer log.close()
	begin := time.Now()
	limited, cancel := context.WithTimeoutCause(ctx, s.deadline, fmt.Errorf("%s took longer than %v", s.name, s.deadline))
	defer cancel()
	l.enter(limited, log)
	defer l.enter(ctx, &scenarioLog{out: r.host.stdout, prefix: "lab"})

	err = s.run(limited, l)
	// Not cut short by the scenario's deadline: nodes that still run must be
	// gone before the next.
	after, stop := context.WithTimeout(context.WithoutCancel(ctx), 2*stopDeadline)
	defer stop()
	if err != nil {
		log.note("FAILED: " + err.Error())
		l.diagnose(after)
	} else {
		err = l.Both(func(n *Node) error { return n.StopMover(after) })
	}
	cancel()
	for _, n := range []*Node{l.A, l.B} {
		if p := n.Mover(); p != nil {
			p.Kill()
		}
	}
	took := time.Since(begin)
	res := result{Name: s.name, Passed: err == nil, Seconds: took.Seconds(), CI: s.ci, tooSoon: errors.Is(err, errTooSoon)}
	if err != nil {
		res.Error = err.Error()
		fmt.Fprintf(r.host.stdout, "lab: %s: FAILED after %.0f s: %v\n", s.name, took.Seconds(), err)
		r.tails(l, s.name)
	} else {
		fmt.Fprintf(r.host.stdout, "lab: %s: ok, %.0f s\n", s.name, took.Seconds())
	}
	return res, nil
}

// tails shows the end of what the nodes said.
func (r *runner) tails(l *Lab, name string) {
	for _, n := range []*Node{l.A, l.B} {
		p := n.Mover()
		if p == nil {
			continue
		}
		text := p.Tail()
		lines := strings.Split(text, "\n")
		lines = lines[max(0, len(lines)-15):]
		fmt.Fprintf(r.host.stdout, "--- the end of %s:\n%s\n", p.path, strings.Join(lines, "\n"))
	}
	fmt.Fprintf(r.host.stdout, "--- more in %s/%s.*\n", r.host.out, name)
}

// diagnose keeps what the guests know of a failure.
func (l *Lab) diagnose(ctx context.Context) {
	_ = l.Both(func(n *Node) error {
		// Not by Run: it is too much for the log.
		r, err := n.Remote().Run(ctx, remote.Command{Args: []string{"sh", "-c", `exec 2>&1; export PATH=$PATH:/run/lab
			set -x; busybox ps -o pid,stat,time,args; ip -s link; ip addr; tc qdisc
			rdma link; rdma resource; rdma statistic; busybox free -m; dmesg`}})
		if err != nil {
			r.Stdout = append(r.Stdout, err.Error()...)
		}
		return os.WriteFile(l.OutFile(n.Name+".dmesg"), append(r.Stdout, '\n'), 0o644)
	})
}
