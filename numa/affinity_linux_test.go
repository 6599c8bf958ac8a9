package numa

import (
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// inChild runs the calling test again in a process of its own, so that masks do not stay behind, and says whether this
// is that process.
func inChild(t *testing.T) bool {
	t.Helper()
	const variable = "NUMA_TEST_CHILD"
	if os.Getenv(variable) == t.Name() {
		return true
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=60s")
	cmd.Env = append(os.Environ(), variable+"="+t.Name())
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Fatalf("child: %v\n%s", err, out)
	}
	return false
}

func TestAllowedCPUs(t *testing.T) {
	got, err := AllowedCPUs()
	if err != nil {
		t.Fatal(err)
	}
	status, err := os.ReadFile("/proc/thread-self/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if list, ok := strings.CutPrefix(line, "Cpus_allowed_list:"); ok {
			if want := cpus(t, list); !got.Equal(want) {
				t.Fatalf("got %s, want %s", got, want)
			}
			return
		}
	}
	t.Fatal("no Cpus_allowed_list")
}

func TestPinThread(t *testing.T) {
	if !inChild(t) {
		return
	}
	runtime.LockOSThread()
	allowed, err := AllowedCPUs()
	if err != nil {
		t.Fatal(err)
	}
	for cpu := range allowed.All() {
		if err := PinThread(CPUSetOf(cpu)); err != nil {
			t.Fatal(err)
		}
		if got, err := AllowedCPUs(); err != nil || !got.Equal(CPUSetOf(cpu)) {
			t.Fatalf("pinned to %d: got %s, %v", cpu, got, err)
		}
	}
	for _, bad := range []CPUSet{{}, CPUSetOf(MaxCPUs - 1), allowed.Union(CPUSetOf(MaxCPUs - 1))} {
		if err := PinThread(bad); err == nil {
			t.Errorf("pinned to %q", bad)
		}
	}
}

func TestSetProcessMask(t *testing.T) {
	if !inChild(t) {
		return
	}
	allowed, err := AllowedCPUs()
	if err != nil {
		t.Fatal(err)
	}
	if allowed.Len() < 2 {
		t.Skip("needs 2 CPUs")
	}
	var list []int
	for cpu := range allowed.All() {
		list = append(list, cpu)
	}
	poller, rest := CPUSetOf(list[0]), allowed.Minus(CPUSetOf(list[0]))

	// A poller that is pinned already, and some other threads.
	pinned, done := make(chan int), make(chan struct{})
	go func() {
		runtime.LockOSThread()
		if err := PinThread(poller); err != nil {
			t.Error(err)
		}
		pinned <- unix.Gettid()
		<-done
	}()
	tid := <-pinned
	for range 4 {
		go func() {
			runtime.LockOSThread()
			<-done
		}()
	}
	if err := SetProcessMask(rest, tid); err != nil {
		t.Fatal(err)
	}
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		other, err := strconv.Atoi(task.Name())
		if err != nil {
			t.Fatal(err)
		}
		want := rest
		if other == tid {
			want = poller
		}
		if got, err := threadCPUs(other); err != nil || !got.Equal(want) {
			t.Errorf("thread %d: %s, %v, want %s", other, got, err, want)
		}
	}
	// Threads to come inherit it.
	got := make(chan CPUSet)
	for range 8 {
		go func() {
			runtime.LockOSThread() // never unlocked: the thread ends with the goroutine, so the next is a new one
			s, err := AllowedCPUs()
			if err != nil {
				t.Error(err)
			}
			got <- s
		}()
		if s := <-got; !s.Equal(rest) {
			t.Errorf("new thread: %s, want %s", s, rest)
		}
	}
	close(done)
	if err := SetProcessMask(CPUSet{}); err == nil {
		t.Error("bound the process to no CPU")
	}
}
