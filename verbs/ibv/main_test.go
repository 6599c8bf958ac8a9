//go:build linux && cgo

package ibv

import (
	"fmt"
	"net/netip"
	"os"
	"testing"

	"mover/verbs"
)

// TestMain fails a run that leaves a PD, MR, CQ, QP, AH or channel open on any
// device that it opened, fake or real.
func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "ibv")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	builds.dir, builds.libs = dir, map[string]string{}
	code := m.Run()
	if code == 0 && !leakFree() {
		return 1
	}
	return code
}

func leakFree() bool {
	clean := true
	for i, ctx := range opened.contexts {
		if c := ctx.Counts(); c != (verbs.Counts{}) {
			fmt.Fprintf(os.Stderr, "leak: %s left %+v open on %s\n", opened.names[i], c, ctx.Device().Name)
			clean = false
		}
		if err := ctx.Close(); err == nil {
			fmt.Fprintf(os.Stderr, "leak: %s left %s open\n", opened.names[i], ctx.Device().Name)
			clean = false
		}
	}
	if n := blocks(); n != 0 {
		fmt.Fprintf(os.Stderr, "leak: %d arrays of C memory\n", n)
		clean = false
	}
	return clean
}

// TestLeakCheck: the check of TestMain sees what is left open.
func TestLeakCheck(t *testing.T) {
	f := newFake(t)
	ctx := f.open()
	before := opened.contexts
	opened.contexts = []verbs.Context{ctx}
	defer func() { opened.contexts = before }()
	names := opened.names
	opened.names = []string{"a test"}
	defer func() { opened.names = names }()
	pd, err := ctx.AllocPD()
	must(t, err)
	stderr := os.Stderr
	os.Stderr, err = os.Open(os.DevNull)
	must(t, err)
	leaked := !leakFree()
	os.Stderr.Close()
	os.Stderr = stderr
	if !leaked {
		t.Error("an open PD was not seen")
	}
	must(t, pd.Dealloc())
}

func mustAddr(t testing.TB, s string) netip.Addr {
	t.Helper()
	a, err := netip.ParseAddr(s)
	must(t, err)
	return a
}
