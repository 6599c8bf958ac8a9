package main

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"mover/lab/remote"
)

// conformanceScenarios run the tests of verbs/ibv on a real kernel.
func conformanceScenarios() []scenario {
	return []scenario{
		{name: "conformance", ci: true, deadline: 4 * time.Minute, prepare: buildIBVTest, run: conformance},
	}
}

// ibvTest is the test program of verbs/ibv, below host.out.
const ibvTest = "ibv.test"

// buildIBVTest compiles it on the host, which has a compiler.
func buildIBVTest(ctx context.Context, h host) error {
	cmd := exec.CommandContext(ctx, "go", "test", "-c", "-buildvcs=false", "-o", filepath.Join(h.out, ibvTest), "./verbs/ibv")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the tests of verbs/ibv: %w: %s", err, out)
	}
	return nil
}

// RunIBVTest runs tests of verbs/ibv in the guest, on both ends of rxe0, and
// fails if one fails or is skipped, or none runs. pattern is that of -test.run. The
// scenario's prepare must be buildIBVTest.
func (n *Node) RunIBVTest(ctx context.Context, pattern string, env ...string) error {
	program, err := n.lab.InGuest(filepath.Join(n.lab.host.out, ibvTest))
	if err != nil {
		return err
	}
	limit := 10 * time.Minute
	if deadline, ok := ctx.Deadline(); ok {
		// Earlier than ours, so that goroutines are shown.
		limit = max(time.Until(deadline)-5*time.Second, time.Second)
	}
	b, err := n.Start(ctx, "ibv.test", remote.Command{
		// One device a guest: from rxe0 to rxe1 in one network namespace
		// packets do not find their way.
		Env: append([]string{"MOVER_IBV_DEVICES=rxe0"}, env...),
		// Random sequences are for the providers that run at full speed; here a
		// few prove that the kernel agrees.
		Args: []string{program, "-test.v", "-test.run", pattern, "-test.timeout", limit.String(),
			"-rapid.checks=20", "-rapid.nofailfile"}, Dir: "/tmp",
	})
	if err != nil {
		return err
	}
	exit, err := b.Wait()
	if err != nil {
		return err
	}
	ran, bad := parseTests(b.Output())
	if exit.Code != 0 || len(bad) > 0 || ran == 0 {
		return fmt.Errorf("the tests of verbs/ibv in guest %s: exit code %d, %d passed, not passed: %s; see %s",
			n.Name, exit.Code, ran, strings.Join(bad, ", "), b.path)
	}
	n.lab.Step("%d tests of verbs/ibv (%s) passed in guest %s", ran, pattern, n.Name)
	return nil
}

var testPattern = regexp.MustCompile(`(?m)^ *--- (PASS|FAIL|SKIP): (\S+)`)

// parseTests counts the tests that passed in what -test.v prints, and lists
// those that did not, with their verdict.
func parseTests(text string) (passed int, others []string) {
	for _, m := range testPattern.FindAllStringSubmatch(text, -1) {
		if m[1] == "PASS" {
			passed++
		} else {
			others = append(others, m[2]+" ("+m[1]+")")
		}
	}
	return passed, others
}

// conformance runs the suite that all providers pass, with both ends on rxe0.
func conformance(ctx context.Context, l *Lab) error {
	l.Step("running the providers' suite on rxe0")
	return l.A.RunIBVTest(ctx, "^TestConformance$")
}
