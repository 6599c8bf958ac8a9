package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"mover/job"
	"mover/reason"
)

// faultScenarios break something while two nodes move data over real verbs.
// Each asserts that the fault has happened, by what the kernel says of ports,
// counters and processes, while the transfer was under way; then that the job
// has succeeded and the bytes are equal. A fault that outlasts the deadlines
// must fail an attempt with the right reason, and the next one succeeds. The
// last group prevents a start, and must end with its message.
func faultScenarios() []scenario {
	return slices.Concat(
		faultRailScenarios(),
		faultNetemScenarios(),
		faultAddressScenarios(),
		faultProcessScenarios(),
		faultDeviceScenarios(),
		faultChurnScenarios(),
		faultStartScenarios(),
	)
}

// stallAfter is jobs.stall_after in these scenarios: short, so that a fault
// that outlasts it does not take long.
const stallAfter = 3 * time.Second

// faultSettings are the nodes' in these scenarios.
func faultSettings() Settings {
	return Settings{Set: map[string]any{"jobs.stall_after": stallAfter.String()}}
}

// startFaulty starts both nodes and moves a little, so that their session is
// up and what follows is about the fault alone.
func (l *Lab) startFaulty(ctx context.Context) error {
	l.Step("starting the nodes")
	if err := l.Both(func(n *Node) error { return n.StartMover(ctx, faultSettings()) }); err != nil {
		return err
	}
	t, err := l.transfer(ctx, "first.bin", 1<<20)
	if err != nil {
		return err
	}
	if _, err := t.succeeded(ctx); err != nil {
		return err
	}
	return l.awaitLanes(ctx)
}

// awaitLanes waits until a has lanes up on every rail. A session that ends
// meanwhile, as emulation may make it, is not dialled again before a job wants
// it: a small one does.
func (l *Lab) awaitLanes(ctx context.Context) error {
	return Await(ctx, "lanes up on both rails", func(ctx context.Context) (bool, string, error) {
		m, err := l.A.Metrics(ctx)
		if err != nil {
			return false, "", err
		}
		up := m.lanesUp()
		if m.Sum("mover_sessions") > 0 {
			return !slices.Contains(up[:], 0), fmt.Sprintf("up, by rail: %v", up), nil
		}
		t, err := l.transfer(ctx, "first.bin", 1<<20)
		if err != nil {
			return false, "", err
		}
		_, _, err = t.end(ctx)
		return false, "there was no session", err
	})
}

// lanesUp are the data lanes that are up, by rail.
func (m Metrics) lanesUp() (up [Rails]int) {
	for rail := range Rails {
		up[rail] = int(m.Sum("mover_rail_lanes_up", "device", railDevice(rail)))
	}
	return up
}

func railDevice(rail int) string { return fmt.Sprintf("rxe%d", rail) }

// A transfer under a fault has to last some seconds, whatever the machine: as
// much is moved as the last probe of the rate says.
const (
	rateProbeBytes = 8 << 20
	leastTransfer  = 16 << 20
	mostTransfer   = 256 << 20
)

// errTooSoon: what was to happen during a transfer has not, for it was over.
// Nothing is proven, and the scenario is run again with a longer one.
var errTooSoon = errors.New("the job was over before that")

// mostStretch bounds how much longer.
const mostStretch = 4

// longTransfer starts a transfer that takes some seconds: as long as a fault
// takes to be brought about and seen, several times over.
func (l *Lab) longTransfer(ctx context.Context, seconds float64) (*transfer, error) {
	probe, err := l.transfer(ctx, "probe.bin", rateProbeBytes)
	if err != nil {
		return nil, err
	}
	s, err := probe.succeeded(ctx)
	if err != nil {
		return nil, err
	}
	size := int64(rateProbeBytes/max(s.Result.Seconds, 0.01)*seconds) * l.stretch
	size = min(max(size, leastTransfer), mostTransfer) >> 20 << 20
	l.Step("moving %d MiB", size>>20)
	t, err := l.transfer(ctx, "fault.bin", size)
	if err != nil {
		return nil, err
	}
	// A good part of it, so that every lane has something out.
	return t, t.awaitBytes(ctx, size/16)
}

// transfer is a job of a to b, which is followed from its submit to its end.
type transfer struct {
	lab  *Lab
	name string
	size int64
	id   job.ID
	done chan struct{}

	mu      sync.Mutex
	seen    job.Snapshot
	reasons []attemptReason // each attempt that failed, in order
	err     error           // of following it; valid after done
}

// attemptReason is why an attempt failed.
type attemptReason struct {
	attempt int
	why     job.Reason
}

func (r attemptReason) String() string {
	return fmt.Sprintf("attempt %d: %s: %s", r.attempt, r.why.Code, r.why.Detail)
}

// transfer submits a job for a new file of some size.
func (l *Lab) transfer(ctx context.Context, name string, size int64) (*transfer, error) {
	// A name that is there already would not be overwritten.
	if _, err := l.B.Run(ctx, "rm", "-f", path.Join(IncomingDir, name)); err != nil {
		return nil, err
	}
	if _, err := l.A.Sh(ctx, `head -c "$1" /dev/urandom >"$2"`, fmt.Sprint(size), path.Join(DataDir, name)); err != nil {
		return nil, err
	}
	s, err := l.A.Submit(ctx, l.A.Send(name))
	if err != nil {
		return nil, err
	}
	t := &transfer{lab: l, name: name, size: size, id: s.ID, done: make(chan struct{}), seen: s}
	api, err := l.A.API(ctx)
	if err != nil {
		return nil, err
	}
	go func() {
		defer close(t.done)
		_, err := api.Wait(ctx, t.id, t.take)
		t.mu.Lock()
		defer t.mu.Unlock()
		t.err = err
	}()
	return t, nil
}

// take notes a view of the job.
func (t *transfer) take(s job.Snapshot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s.Version != t.seen.Version {
		t.lab.Note("job %s: %s", t.name, brief(s))
	}
	t.seen = s
	if s.LastReason == nil || s.State != job.Queued && s.State != job.Failed {
		return
	}
	r := attemptReason{s.Attempts, *s.LastReason}
	if n := len(t.reasons); n == 0 || t.reasons[n-1].attempt != r.attempt {
		t.reasons = append(t.reasons, r)
	}
}

// failures are the attempts that failed so far.
func (t *transfer) failures() []attemptReason {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.reasons)
}

// awaitBytes waits until the job's attempt has moved more than that.
func (t *transfer) awaitBytes(ctx context.Context, bytes int64) error {
	_, err := t.lab.A.AwaitJob(ctx, t.id, fmt.Sprintf("more than %d bytes moved", bytes), func(s job.Snapshot) bool {
		return !s.State.Terminal() && s.Progress.BytesDone > bytes
	})
	return err
}

// underWay returns the job as it is, and fails if it has ended: what was to
// happen during the transfer has not.
func (t *transfer) underWay(ctx context.Context) (job.Snapshot, error) {
	s, err := t.lab.A.Job(ctx, t.id)
	if err != nil {
		return s, err
	}
	if s.State.Terminal() {
		return s, fmt.Errorf("%w: %s", errTooSoon, brief(s))
	}
	return s, nil
}

// awaitFailure waits until an attempt has failed, and fails unless its reason
// is one of codes.
func (t *transfer) awaitFailure(ctx context.Context, codes ...reason.Code) (attemptReason, error) {
	var first attemptReason
	_, err := t.lab.A.AwaitJob(ctx, t.id, "an attempt that fails", func(s job.Snapshot) bool {
		if failures := t.failures(); len(failures) > 0 {
			first = failures[0]
		}
		return first.attempt != 0
	})
	if err != nil {
		return first, err
	}
	if !slices.Contains(codes, first.why.Code) {
		return first, fmt.Errorf("an attempt failed with another reason than %v: %v", codes, first)
	}
	t.lab.Step("as it must: %v", first)
	return first, nil
}

// succeeded waits for the end, tells it, and fails unless the job succeeded and
// the file is the same on both sides.
func (t *transfer) succeeded(ctx context.Context) (job.Snapshot, error) {
	s, sum, err := t.end(ctx)
	if err == nil {
		t.lab.Step("%s: %d MiB in attempt %d, sha256 %s on both sides%s", t.name, t.size>>20, s.Attempts, sum[:16], failureText(t.failures()))
	}
	return s, err
}

// end is succeeded without a word; it returns the SHA-256 too.
func (t *transfer) end(ctx context.Context) (s job.Snapshot, sum string, err error) {
	select {
	case <-t.done:
	case <-ctx.Done():
		t.mu.Lock()
		defer t.mu.Unlock()
		return t.seen, "", fmt.Errorf("the job does not end: %w; it is %s%s", context.Cause(ctx), brief(t.seen), failureText(t.reasons))
	}
	t.mu.Lock()
	s, err = t.seen, t.err
	t.mu.Unlock()
	switch {
	case err != nil:
		return s, "", err
	case s.State != job.Succeeded:
		return s, "", fmt.Errorf("job %s: %s%s", t.name, brief(s), failureText(t.failures()))
	case s.Result == nil || !s.Result.Verified || !s.Result.Durable || s.Result.Bytes != t.size:
		return s, "", fmt.Errorf("job %s is not %d bytes, verified and durable: %s", t.name, t.size, brief(s))
	}
	sum, err = SameFile(ctx, t.lab.A, path.Join(DataDir, t.name), t.lab.B, path.Join(IncomingDir, t.name))
	return s, sum, err
}

func failureText(reasons []attemptReason) string {
	var text []string
	for _, r := range reasons {
		text = append(text, r.String())
	}
	if len(text) == 0 {
		return ""
	}
	return "; before: " + strings.Join(text, "; ")
}

// nothingElse fails if b's incoming has anything but the files that were moved:
// an attempt that failed must leave no partial file.
func (l *Lab) nothingElse(ctx context.Context) error {
	return Await(ctx, "no partial file in b", func(ctx context.Context) (bool, string, error) {
		out, err := l.B.Run(ctx, "find", IncomingDir, "-type", "f", "-not", "-name", "first.bin", "-not", "-name", "probe.bin",
			"-not", "-name", "fault.bin", "-not", "-name", "after.bin")
		return out == "", "there is " + out, err
	})
}

// bothRailsBack shows that the mended network is used in full again: lanes come
// up on both rails, and in another transfer both carry bytes.
func (l *Lab) bothRailsBack(ctx context.Context) error {
	if err := l.awaitLanes(ctx); err != nil {
		return err
	}
	before, err := l.A.Metrics(ctx)
	if err != nil {
		return err
	}
	t, err := l.transfer(ctx, "after.bin", rateProbeBytes)
	if err != nil {
		return err
	}
	if _, err := t.succeeded(ctx); err != nil {
		return err
	}
	after, err := l.A.Metrics(ctx)
	if err != nil {
		return err
	}
	var grown [Rails]int64
	for rail := range Rails {
		was, _ := before.RailBytes(rail)
		is, _ := after.RailBytes(rail)
		if is < was { // another session, which began to count anew
			was = 0
		}
		grown[rail] = is - was
	}
	l.Step("both rails carry again: %.1f and %.1f MB", float64(grown[0])/1e6, float64(grown[1])/1e6)
	for rail, bytes := range grown {
		if bytes < rateProbeBytes/20 {
			return fmt.Errorf("rail %d carried %d bytes of %d after it was mended", rail, bytes, rateProbeBytes)
		}
	}
	return l.nothingElse(ctx)
}

// runJSON runs a program that prints JSON.
func (n *Node) runJSON(ctx context.Context, out any, args ...string) error {
	text, err := n.Run(ctx, args...)
	if err != nil {
		return err
	}
	if err := json.Unmarshal([]byte(text), out); err != nil {
		return fmt.Errorf("guest %s: %s prints no JSON: %w: %q", n.Name, strings.Join(args, " "), err, text)
	}
	return nil
}

// laterAttempt is for AwaitJob: an attempt after that has moved something.
func laterAttempt(attempt int) func(job.Snapshot) bool {
	return func(s job.Snapshot) bool {
		return !s.State.Terminal() && s.Attempts > attempt && s.State != job.Queued && s.Progress.BytesDone > 0
	}
}
