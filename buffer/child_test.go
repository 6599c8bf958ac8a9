package buffer

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// child is a process of its own with a registry, to be killed. It prints a line after every step.
func child(what string) {
	ctx := context.Background()
	fail := func(err error) {
		if err != nil {
			fmt.Println("failed:", err)
			os.Exit(1)
		}
	}
	if what == "hugetlbfs" {
		hugetlbfsChild(os.Getenv("MOVER_BUFFER_DIR"))
		return
	}
	r, _, err := Open(ctx, Config{Dir: os.Getenv("MOVER_BUFFER_DIR"), Node: "host-a", shmDir: os.Getenv("MOVER_BUFFER_SHM")})
	fail(err)
	switch what {
	case "write":
		_, _, err := r.Create(ctx, small("a"))
		fail(err)
		info, err := r.Get("a")
		fail(err)
		l, err := r.Lease(LeaseRequest{Name: "a", Length: 1 << 20, Exclusive: true, Holder: "child"})
		fail(err)
		_, err = l.WriteAt(bytes.Repeat([]byte("child..."), 1000), 4096)
		fail(err)
		fmt.Println(info.Generation)
		_, _ = io.Copy(io.Discard, os.Stdin) // until killed, or the parent is gone
	case "churn":
		for {
			name := string(rune('a' + rand.N(4)))
			_, created, err := r.Create(ctx, small(name))
			fail(err)
			if created {
				l, err := r.Lease(LeaseRequest{Name: name, Length: 100, Exclusive: true, Holder: "child"})
				fail(err)
				_, err = l.WriteAt([]byte(name), 0)
				fail(err)
				l.Release()
			} else {
				fail(r.Delete(ctx, name))
			}
			if _, err := fmt.Println("step"); err != nil {
				return
			}
		}
	}
}

// process is a running child.
type process struct {
	cmd   *exec.Cmd
	lines *bufio.Scanner
}

func (h *host) start(t *testing.T, what string, attr *syscall.SysProcAttr) *process {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "MOVER_BUFFER_CHILD="+what, "MOVER_BUFFER_DIR="+h.Dir, "MOVER_BUFFER_SHM="+h.shmDir)
	cmd.Stderr, cmd.SysProcAttr = os.Stderr, attr
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &process{cmd, bufio.NewScanner(out)}
	t.Cleanup(p.kill)
	return p
}

// line waits for the child's next.
func (p *process) line(t *testing.T) string {
	t.Helper()
	if !p.lines.Scan() {
		t.Fatalf("the child ended: %v", p.lines.Err())
	}
	if strings.HasPrefix(p.lines.Text(), "failed:") {
		t.Fatal(p.lines.Text())
	}
	return p.lines.Text()
}

func (p *process) kill() {
	_ = p.cmd.Process.Signal(unix.SIGKILL) // it may be gone
	_ = p.cmd.Wait()
}

// TestSecondProcess: what a killed process wrote is there, under a generation of its own.
func TestSecondProcess(t *testing.T) {
	h := newHost(t)
	p := h.start(t, "write", nil)
	generation := p.line(t)
	p.kill()
	r, problems := h.open(t)
	if len(problems) != 0 {
		t.Fatalf("%v", problems)
	}
	info, err := r.Get("a")
	if err != nil || fmt.Sprint(info.Generation) <= generation || len(info.Leases) != 0 {
		t.Errorf("%+v, %v; the child had generation %s", info, err, generation)
	}
	l := lease(t, r, "a", 0, 1<<20, true)
	if m := l.Memory(); !bytes.Equal(m[4096:12096], bytes.Repeat([]byte("child..."), 1000)) || !zeroed(m[:4096]) || !zeroed(m[12096:]) {
		t.Error("the content is another")
	}
	l.Release()
	if after, _ := r.Get("a"); after.Generation != info.Generation {
		t.Error("the generation changed without a write")
	}
}

// TestKilledAnywhere: a process killed at any point leaves buffers that are whole, and nothing else.
func TestKilledAnywhere(t *testing.T) {
	h := newHost(t)
	for range 8 {
		p := h.start(t, "churn", nil)
		for range rand.N(12) + 1 {
			p.line(t)
		}
		p.kill()
		r, problems := h.open(t)
		if len(problems) != 0 {
			t.Errorf("%v", problems)
		}
		var names []string
		for _, i := range r.List() {
			names = append(names, i.Name)
			lease(t, r, i.Name, 0, i.Bytes, true).Release()
			if i.Problem != "" || i.MappedBytes != 1<<20 {
				t.Errorf("%+v", i)
			}
		}
		h.wantFiles(t, names...)
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
