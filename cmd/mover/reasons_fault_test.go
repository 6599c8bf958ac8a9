package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"mover/job"
	"mover/reason"
)

// faultyBuild makes mover with the faults of package fault, once, beside binary.
var faultyBuild = sync.OnceValues(func() (string, error) {
	file := filepath.Join(filepath.Dir(binary), "mover-fault")
	args := []string{"build", "-buildvcs=false", "-tags", "moverfault", "-o", file}
	if raceDetector {
		args = append(args, "-race")
	}
	if out, err := exec.Command("go", append(args, ".")...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("building mover with faults: %w\n%s", err, out)
	}
	return file, nil
})

func faultyBinary(t *testing.T) string {
	t.Helper()
	file, err := faultyBuild()
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// setFault puts a fault in force at a node; "" ends it.
func (n *testNode) setFault(t *testing.T, name string) {
	t.Helper()
	// By rename: a node that reads in between would see no fault.
	if err := os.WriteFile(n.path("fault.new"), []byte(name), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(n.path("fault.new"), n.path("fault")); err != nil {
		t.Fatal(err)
	}
}

// broken moves a file while a node has a fault, and returns how the job ended.
func broken(fault string, at func(w *reasonNodes) *testNode, place string) func(t *testing.T, w *reasonNodes) job.Snapshot {
	return func(t *testing.T, w *reasonNodes) job.Snapshot {
		name := w.file(t, fault)
		at(w).setFault(t, fault)
		defer at(w).setFault(t, "")
		s := w.to(t, name, place+fault, nil)
		if s.Attempts != 1 {
			t.Errorf("%d attempts at what no retry can mend", s.Attempts)
		}
		return s
	}
}

// mended has a fault until the first attempt has failed, and then not: the job
// succeeds with another attempt. It returns the job as it was in between.
func mended(fault string, at func(w *reasonNodes) *testNode, place string) func(t *testing.T, w *reasonNodes) job.Snapshot {
	return func(t *testing.T, w *reasonNodes) job.Snapshot {
		name := w.file(t, fault)
		at(w).setFault(t, fault)
		defer at(w).setFault(t, "")
		id := w.begin(t, name, place+fault, nil)
		var failed job.Snapshot
		within(t, jobLimit, "no attempt has failed", func() bool {
			failed = w.a.job(t, id)
			return failed.LastReason != nil || failed.State.Terminal()
		})
		at(w).setFault(t, "")
		if s := w.a.ended(t, id); s.State != job.Succeeded || s.Attempts < 2 {
			t.Errorf("without the fault: %s after %d attempts, %+v", s.State, s.Attempts, s.LastReason)
		}
		failed.State = job.Succeeded // as it ends
		return failed
	}
}

func atA(w *reasonNodes) *testNode { return w.a }
func atB(w *reasonNodes) *testNode { return w.b }

// faultReasons are those that need a fault; two of a code come by other ways.
var faultReasons = []reasonCase{
	{reason.Internal, job.Failed, []string{"defect of this program", "report it", "the node's log"}, broken("fstat-panics", atA, "b:incoming/")},
	{reason.IOError, job.Failed, []string{"read", "see the kernel's log for this disk"}, broken("read-eio", atA, "b:incoming/")},
	{reason.IOError, job.Failed, []string{"write", "see the kernel's log for this disk"}, broken("write-eio", atB, "b:incoming/")},
	{reason.IOError, job.Failed, []string{"sync", "see the kernel's log for this disk"}, broken("sync-eio", atB, "b:incoming/")},
	{reason.ChecksumMismatch, job.Succeeded, []string{"arrived with CRC32C", "look for bad memory or a bad adapter"}, mended("wire-flips", atA, "b:incoming/")},
	{reason.ChecksumMismatch, job.Succeeded, []string{"read back with CRC32C", "look for a bad disk or bad memory"}, mended("read-flips", atA, "a:incoming/")},
	{reason.TransportError, job.Succeeded, []string{"an access error on lane", "report it with both nodes' logs"}, mended("wrong-rkey", atA, "b:incoming/")},
	{reason.Stalled, job.Succeeded, []string{"no progress for", "look at the disks of both nodes", "raise jobs.stall_after"}, mended("write-hangs", atB, "b:incoming/")},
}

// TestReasonsOfFaults ends an attempt for every reason that a healthy host
// does not give.
func TestReasonsOfFaults(t *testing.T) {
	program := faultyBinary(t)
	w := &reasonNodes{a: newNode(t, "a"), b: newNode(t, "b")}
	for _, n := range []*testNode{w.a, w.b} {
		n.program, n.env = program, []string{"MOVER_FAULT=" + n.path("fault")}
	}
	w.a.configure(t, "jobs: {stall_after: 4s}\n", w.b.as(t))
	w.b.configure(t, "jobs: {stall_after: 4s}\n", w.a.as(t))
	w.a.start(t)
	w.b.start(t)
	for _, c := range faultReasons {
		t.Run(string(c.code), func(t *testing.T) {
			s := c.run(t, w)
			wantReason(t, s, c.state, string(c.code))
			if s.LastReason.Retryable != c.code.Retryable() {
				t.Errorf("retryable is %t", s.LastReason.Retryable)
			}
			c.checkText(t, s.LastReason.Detail)
			w.wantSettled(t, c.state == job.Succeeded)
		})
	}
	w.a.stop(t)
	w.b.stop(t)
}

// wantSettled checks that a job left its file whole, or nothing, and removes it.
func (w *reasonNodes) wantSettled(t *testing.T, arrived bool) {
	t.Helper()
	find := func(pattern string) (found []string) {
		for _, n := range []*testNode{w.a, w.b} {
			names, err := filepath.Glob(n.path("incoming", pattern))
			if err != nil {
				t.Fatal(err)
			}
			found = append(found, names...)
		}
		return found
	}
	// The destination hears of the end after the source.
	within(t, 10*time.Second, "a partial file is still there", func() bool { return len(find(".mover*")) == 0 })
	found := find("*")
	if arrived != (len(found) == 1) {
		t.Errorf("at the destination is %q", found)
	}
	for _, name := range found {
		want, err := os.ReadFile(w.a.path("data", filepath.Base(name)))
		if err != nil {
			t.Fatal(err)
		}
		wantContent(t, name, want)
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
}

// TestOrdinaryBuildHasNoFaults: neither the variable nor the package is in it.
func TestOrdinaryBuildHasNoFaults(t *testing.T) {
	ordinary, err := os.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	faulty, err := os.ReadFile(faultyBinary(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, trace := range []string{"MOVER_FAULT", "mover/fault.Now", "fstat-panics", "injected for a test"} {
		if bytes.Contains(ordinary, []byte(trace)) {
			t.Errorf("the ordinary build has %q", trace)
		}
		if !bytes.Contains(faulty, []byte(trace)) {
			t.Errorf("the build with faults has no %q: this test looks for the wrong thing", trace)
		}
	}
}
