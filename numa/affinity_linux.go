package numa

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// AllowedCPUs returns the CPUs the calling thread may run on: taskset, cpuset and container limits applied. Called at
// start, before anything is pinned, that is what the process may use. A CPU quota does not show here.
func AllowedCPUs() (CPUSet, error) {
	return threadCPUs(0)
}

// threadCPUs reads the affinity of a thread of this process, 0 for the calling one.
func threadCPUs(tid int) (CPUSet, error) {
	mask := unix.NewCPUSet(MaxCPUs)
	if err := unix.SchedGetaffinityDynamic(tid, mask); err != nil {
		return CPUSet{}, fmt.Errorf("numa: sched_getaffinity of thread %d: %w", tid, err)
	}
	var s CPUSet
	for cpu := range MaxCPUs {
		if mask.IsSet(cpu) {
			s.set(cpu)
		}
	}
	return s, nil
}

// bindThread sets the affinity of a thread and reads it back: the kernel leaves out CPUs that are offline or outside
// the cpuset without a word, see sched_setaffinity(2).
func bindThread(tid int, cpus CPUSet) error {
	if cpus.Empty() {
		return errors.New("numa: cannot bind a thread to no CPU")
	}
	mask := unix.NewCPUSet(MaxCPUs)
	for cpu := range cpus.All() {
		mask.Set(cpu)
	}
	if err := unix.SchedSetaffinityDynamic(tid, mask); err != nil {
		return fmt.Errorf("numa: bind thread %d to CPUs %s: %w (are they online, and in the cpuset?)", tid, cpus, err)
	}
	got, err := threadCPUs(tid)
	if err != nil {
		return err
	}
	if !got.Equal(cpus) {
		return fmt.Errorf("numa: bind thread %d to CPUs %s: the kernel made it %s (are they online, and in the cpuset?)",
			tid, cpus, got)
	}
	return nil
}

// PinThread binds the calling OS thread to cpus and verifies it. The caller has called runtime.LockOSThread and does
// not unlock: a pinned thread must not go back to the scheduler. Threads the runtime creates later do not inherit the
// mask, because it never clones a locked thread.
func PinThread(cpus CPUSet) error {
	return bindThread(0, cpus)
}

// maxMaskPasses bounds how often SetProcessMask looks for threads that were created while it was at work.
const maxMaskPasses = 16

// SetProcessMask binds every thread of the process to cpus, but for those whose thread IDs (gettid(2)) are given, and
// verifies it. Threads created later inherit the mask from the thread that creates them. It belongs at start, before
// pollers lock and pin their threads.
func SetProcessMask(cpus CPUSet, except ...int) error {
	for range maxMaskPasses {
		changed, err := maskThreads(cpus, except)
		if err != nil {
			return err
		}
		if !changed {
			return nil
		}
	}
	return fmt.Errorf("numa: bind all threads to CPUs %s: new threads kept appearing in %d passes", cpus, maxMaskPasses)
}

// maskThreads binds all threads there are now and says whether any had another mask.
func maskThreads(cpus CPUSet, except []int) (changed bool, err error) {
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return false, fmt.Errorf("numa: list threads: %w", err)
	}
	for _, task := range tasks {
		tid, err := strconv.Atoi(task.Name())
		if err != nil || slices.Contains(except, tid) {
			continue
		}
		got, err := threadCPUs(tid)
		if err == nil && !got.Equal(cpus) {
			changed = true
			err = bindThread(tid, cpus)
		}
		if err != nil && !errors.Is(err, unix.ESRCH) { // a thread may end at any time
			return changed, err
		}
	}
	return changed, nil
}
