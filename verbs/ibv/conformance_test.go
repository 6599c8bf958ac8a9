//go:build linux && cgo

package ibv

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"mover/verbs"
	"mover/verbs/conformance"
)

// The tests on real devices read these from the environment:
//
//	MOVER_IBV_DEVICES  "rxe0", or "rxe0,rxe1": A and B, that reach each other
//	MOVER_IBV_LIBRARY  libibverbs, when it is not the system's
//	MOVER_IBV_CHURN    QPs that the churn opens and tears down, 500
const (
	envDevices = "MOVER_IBV_DEVICES"
	envLibrary = "MOVER_IBV_LIBRARY"
	envChurn   = "MOVER_IBV_CHURN"
)

// realDevices opens libibverbs and returns the names of A and B; one device
// is opened twice. It skips when none is named, and fails when one that is
// named is not there.
func realDevices(t *testing.T) (*Provider, [2]string) {
	t.Helper()
	names := strings.Split(os.Getenv(envDevices), ",")
	if names[0] == "" {
		t.Skip(envDevices + " names no RDMA device (the lab's guests have some)")
	}
	if len(names) == 1 {
		names = append(names, names[0])
	}
	if len(names) != 2 {
		t.Fatalf("%s=%q: one or two names", envDevices, os.Getenv(envDevices))
	}
	p, err := New(Config{Library: os.Getenv(envLibrary)})
	must(t, err)
	return p, [2]string(names)
}

// isRxe tells Soft-RoCE, whose differences are known, from hardware.
func isRxe(info verbs.DeviceInfo) bool {
	return info.Software && (strings.HasPrefix(info.Name, "rxe") || sysDevice{sys: "/sys", name: info.Name}.read("node_desc") == "rxe")
}

// rxeLacks is how Soft-RoCE of kernel 6.1 differs from the specification: no
// QP_ACCESS_ERR (it never raises it); a full CQ drops completions and goes on;
// an acknowledged WR frees its entry whether or not a completion was polled; a
// bad lkey and a receive too short are LOC_QP_OP_ERR; and a UC receiver that
// missed the end of a write of several packets takes nothing more.
const rxeLacks = conformance.AccessEvents | conformance.OverrunIsFatal | conformance.StrictSQ | conformance.ExactStatus |
	conformance.UCRecovers

func TestConformance(t *testing.T) {
	p, names := realDevices(t)
	lacks, settle := conformance.Feature(0), 20*time.Millisecond
	for _, name := range names {
		ctx := open(t, p, name)
		if info := ctx.Device(); isRxe(info) {
			lacks |= rxeLacks
			settle = 100 * time.Millisecond // in an emulated machine
		}
		must(t, ctx.Close())
	}
	conformance.Run(t, conformance.Harness{
		Lacks:      lacks,
		AckTimeout: 16, // 268 ms
		Open: func(tb conformance.TB) *conformance.Pair {
			return &conformance.Pair{
				A: openReal(tb, p, names[0]), B: openReal(tb, p, names[1]),
				Progress: conformance.PollFor(2 * time.Minute),
				Settle: func(poll func()) {
					conformance.PollFor(settle)(func() bool { poll(); return false })
				},
			}
		},
	})
}

// openReal opens a device and has TestMain look at it in the end.
func openReal(tb conformance.TB, p *Provider, name string) verbs.Context {
	tb.Helper()
	ctx, err := p.OpenDevice(name)
	if err != nil {
		tb.Fatalf("%v", err)
	}
	opened.Lock()
	defer opened.Unlock()
	opened.contexts = append(opened.contexts, ctx)
	opened.names = append(opened.names, "the conformance suite")
	return ctx
}

// churnCount is how many QPs the churn opens and tears down.
func churnCount(t *testing.T) int {
	t.Helper()
	s := os.Getenv(envChurn)
	if s == "" {
		return 500
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 {
		t.Fatalf("%s=%q is not a positive number", envChurn, s)
	}
	return n
}
