package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// faultChurnScenarios make and end QPs and sessions again and again: nothing
// may grow, not in the nodes and not in the kernel.
func faultChurnScenarios() []scenario {
	return []scenario{
		{name: "churn-qps", ci: true, deadline: 5 * time.Minute, prepare: buildIBVTest, run: churnQPs},
		{name: "churn-sessions", deadline: 6 * time.Minute, run: churnSessions},
	}
}

const (
	churnedQPs      = 500
	churnedSessions = 20
)

// churnQPs opens and tears down QPs at the verbs layer, on rxe0 with both ends
// in one guest. The test itself compares counts, descriptors and memory.
func churnQPs(ctx context.Context, l *Lab) error {
	before, err := l.B.rdmaResources(ctx)
	if err != nil {
		return err
	}
	l.Step("opening and tearing down %d pairs of QPs on rxe0", churnedQPs)
	if err := l.B.RunIBVTest(ctx, "^TestChurn$", fmt.Sprintf("MOVER_IBV_CHURN=%d", churnedQPs)); err != nil {
		return err
	}
	after, err := l.B.rdmaResources(ctx)
	if err != nil {
		return err
	}
	if after != before {
		return fmt.Errorf("the kernel's resources were %+v, then %+v", before, after)
	}
	l.Step("the kernel's resources before and after: %+v", after)
	return nil
}

// rdmaCounts are the kernel's RDMA objects over both devices (rdma-resource(8)).
type rdmaCounts struct {
	PD  int `json:"pd"`
	CQ  int `json:"cq"`
	QP  int `json:"qp"`
	MR  int `json:"mr"`
	Ctx int `json:"ctx"`
}

func (n *Node) rdmaResources(ctx context.Context) (rdmaCounts, error) {
	var devices []rdmaCounts
	var sum rdmaCounts
	if err := n.runJSON(ctx, &devices, "rdma", "-j", "resource", "show"); err != nil {
		return sum, err
	}
	for _, d := range devices {
		sum.PD, sum.CQ, sum.QP, sum.MR, sum.Ctx = sum.PD+d.PD, sum.CQ+d.CQ, sum.QP+d.QP, sum.MR+d.MR, sum.Ctx+d.Ctx
	}
	return sum, nil
}

// nodeUse is what a node and its kernel hold.
type nodeUse struct {
	rdma     rdmaCounts
	files    int   // descriptors of the process
	rssBytes int64 // of the process, huge pages left out
}

func (n *Node) use(ctx context.Context) (nodeUse, error) {
	rdma, err := n.rdmaResources(ctx)
	if err != nil {
		return nodeUse{}, err
	}
	p := n.Mover()
	if p == nil {
		return nodeUse{}, ErrNotRunning
	}
	files, err := n.Sh(ctx, `ls "/proc/$1/fd" | wc -l`, strconv.Itoa(p.PID()))
	if err != nil {
		return nodeUse{}, err
	}
	count, err := strconv.Atoi(strings.TrimSpace(files))
	if err != nil {
		return nodeUse{}, fmt.Errorf("descriptors of node %s: %w", n.Name, err)
	}
	status, err := n.ReadFile(ctx, fmt.Sprintf("/proc/%d/status", p.PID()))
	if err != nil {
		return nodeUse{}, err
	}
	rss, err := parseRSS(status)
	return nodeUse{rdma: rdma, files: count, rssBytes: rss}, err
}

// parseRSS reads VmRSS of /proc/PID/status (proc(5)), which is in KiB.
func parseRSS(status string) (int64, error) {
	for line := range strings.Lines(status) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("no VmRSS in %q", status)
}

// churnSessions has sessions made, used and lost, by destroying the control
// connection under them (ss -K), without an end of either node.
func churnSessions(ctx context.Context, l *Lab) error {
	l.Step("starting the nodes")
	if err := l.Both(func(n *Node) error { return n.StartMover(ctx, faultSettings()) }); err != nil {
		return err
	}
	idle, err := l.rdmaOfBoth(ctx)
	if err != nil {
		return err
	}
	const warmUp = 3 // sessions until buffers and pools have their size
	var before, after [2]nodeUse
	for i := range warmUp + churnedSessions {
		if err := l.oneSession(ctx, idle); err != nil {
			return fmt.Errorf("session %d: %w", i+1, err)
		}
		if i == warmUp-1 {
			if before, err = l.useOfBoth(ctx); err != nil {
				return err
			}
		}
	}
	if after, err = l.useOfBoth(ctx); err != nil {
		return err
	}
	l.Step("%d sessions, each with a file moved and compared", warmUp+churnedSessions)
	for i, n := range []*Node{l.A, l.B} {
		was, is := before[i], after[i]
		l.Step("node %s after %d sessions: %+v, %d descriptors, %.1f MB resident; before %d and %.1f MB", n.Name, churnedSessions,
			is.rdma, is.files, float64(is.rssBytes)/1e6, was.files, float64(was.rssBytes)/1e6)
		if is.rdma != was.rdma {
			return fmt.Errorf("node %s: RDMA resources were %+v, then %+v", n.Name, was.rdma, is.rdma)
		}
		// Connections to the API come and go.
		if is.files > was.files+4 {
			return fmt.Errorf("node %s: %d descriptors, then %d", n.Name, was.files, is.files)
		}
		// A heap's size moves by itself; a session that stays would be its QPs'
		// rings, goroutines and buffers, a megabyte each.
		if grown := is.rssBytes - was.rssBytes; grown > churnedSessions<<20 {
			return fmt.Errorf("node %s: resident memory grew by %d bytes in %d sessions", n.Name, grown, churnedSessions)
		}
	}
	return nil
}

// oneSession makes a session, moves a file over it and ends it; idle is what
// the kernels hold without one.
func (l *Lab) oneSession(ctx context.Context, idle [2]rdmaCounts) error {
	t, err := l.transfer(ctx, "first.bin", 256<<10)
	if err != nil {
		return err
	}
	if _, _, err := t.end(ctx); err != nil {
		return err
	}
	during, err := l.rdmaOfBoth(ctx)
	if err != nil {
		return err
	}
	for i := range during {
		if during[i].QP <= idle[i].QP {
			return fmt.Errorf("a session without QPs: %+v, idle %+v", during[i], idle[i])
		}
	}
	if err := l.endSession(ctx); err != nil {
		return err
	}
	return Await(ctx, "the end of the session", func(ctx context.Context) (bool, string, error) {
		now, err := l.rdmaOfBoth(ctx)
		return now == idle, fmt.Sprintf("%+v, idle %+v", now, idle), err
	})
}

// endSession destroys the control connection, which a has dialled.
func (l *Lab) endSession(ctx context.Context) error {
	_, err := l.A.Run(ctx, "ss", "-K", "-Htn", "dport = :"+controlPort)
	return err
}

func (l *Lab) rdmaOfBoth(ctx context.Context) (out [2]rdmaCounts, err error) {
	err = l.Both(func(n *Node) (err error) {
		out[n.index], err = n.rdmaResources(ctx)
		return err
	})
	return out, err
}

func (l *Lab) useOfBoth(ctx context.Context) (out [2]nodeUse, err error) {
	err = l.Both(func(n *Node) (err error) {
		out[n.index], err = n.use(ctx)
		return err
	})
	return out, err
}
