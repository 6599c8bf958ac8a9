package job

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

const crashEnv = "MOVER_JOB_TEST_CRASH_DIR"

// quickRouter ends every attempt at once, some with a retryable failure.
type quickRouter struct{}

func (quickRouter) Run(_ context.Context, a *Attempt) (Result, error) {
	a.Phase(Running)
	a.Items.Add(ItemRecord{Path: []byte("x"), Kind: EntryFile, State: ItemSucceeded})
	return Result{}, nil
}

// TestCrashChild is the process that is killed; it submits until then.
func TestCrashChild(t *testing.T) {
	dir := os.Getenv(crashEnv)
	if dir == "" {
		t.Skip("runs as the child of TestCrash")
	}
	q, err := NewQueue(Config{NodeName: "a", Router: quickRouter{}, StateDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	for w := range 4 {
		go func() {
			for i := 0; ; i++ {
				key := fmt.Sprintf("%d-%d-%d", os.Getpid(), w, i)
				s, _, err := q.Submit(context.Background(), testSpec(nil), "a/t", key)
				if err == nil {
					fmt.Printf("ack %s %s\n", key, s.ID) // one write: lines do not mix
				}
			}
		}()
	}
	time.Sleep(time.Minute) // the parent ends it before
}

// TestCrash: a process that is killed at any moment loses nothing that it
// acknowledged.
func TestCrash(t *testing.T) {
	dir := t.TempDir()
	acked := map[string]string{}
	for range 4 {
		cmd := exec.Command(os.Args[0], "-test.run=^TestCrashChild$")
		cmd.Env = append(os.Environ(), crashEnv+"="+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		kill, lines := 1+rand.IntN(200), 0
		for in := bufio.NewScanner(out); in.Scan(); {
			if f := strings.Fields(in.Text()); len(f) == 3 && f[0] == "ack" && len(f[2]) == 36 {
				acked[f[1]] = f[2]
			}
			if lines++; lines == kill {
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
		}
		_ = cmd.Wait() // it was killed
		check(t, dir, acked)
	}
	if len(acked) == 0 {
		t.Error("nothing was acknowledged")
	}
}

func check(t *testing.T, dir string, acked map[string]string) {
	t.Helper()
	// The child's clock: by another, what ended would be too old to keep.
	b := newBench(t, func(c *Config) { c.StateDir, c.Clock = dir, SystemClock{} })
	defer b.close()
	b.Drain(true)
	seen := map[string]bool{}
	token := ""
	for {
		page, next, err := b.List(Filter{}, token, MaxPage)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range page {
			if seen[s.ID.String()] || !s.State.Valid() || s.State.Terminal() != (s.FinishedAt != nil) {
				t.Errorf("twice, or odd: %+v", s)
			}
			seen[s.ID.String()] = true
		}
		if token = next; token == "" {
			break
		}
	}
	for key, id := range acked {
		if !seen[id] {
			t.Errorf("%s is lost", id)
		}
		rec, ok, err := b.db.byKey(keyOf{"a/t", key})
		if err != nil || !ok || rec.snap.ID.String() != id {
			t.Errorf("the key of %s: %v %v", id, ok, err)
		}
	}
}

func BenchmarkDurableSubmit(b *testing.B) {
	q, err := NewQueue(Config{NodeName: "a", Router: quickRouter{}, StateDir: b.TempDir(), MaxQueued: 1 << 20})
	if err != nil {
		b.Fatal(err)
	}
	q.Drain(false)
	b.SetParallelism(32) // of each of GOMAXPROCS
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, _, err := q.Submit(context.Background(), testSpec(nil), "a/t", ""); err != nil {
				b.Error(err)
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "submits/s")
	b.StopTimer()
	if err := q.Close(context.Background()); err != nil {
		b.Error(err)
	}
}
