package numa

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrMemlock is wrapped by [MemlockError].
var ErrMemlock = errors.New("memlock limit too low")

// MemlockError says that less memory may be registered than is needed.
type MemlockError struct {
	Need, Limit uint64 // bytes
}

// Error names limit, need and fix.
func (e *MemlockError) Error() string {
	return fmt.Sprintf("%v: registering memory needs %d MiB (%d bytes), the limit is %s (%d bytes); "+
		"raise it (ulimit -l %d; systemd: LimitMEMLOCK=infinity; docker: --ulimit memlock=-1; "+
		"or /etc/security/limits.d), or make arenas and shares smaller",
		ErrMemlock, roundUp(e.Need, 1<<20)>>20, e.Need, wholeUnits(e.Limit), e.Limit, roundUp(e.Need, 1<<10)>>10)
}

// Unwrap makes errors.Is(err, ErrMemlock) true.
func (e *MemlockError) Unwrap() error { return ErrMemlock }

// MemlockLimit returns how many bytes the process may register for RDMA, its RLIMIT_MEMLOCK. unlimited is true, and
// limit without meaning, when that is infinite or the process has CAP_IPC_LOCK, which the kernel's ib_umem_get exempts
// from it.
func MemlockLimit() (limit uint64, unlimited bool, err error) {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &r); err != nil {
		return 0, false, fmt.Errorf("numa: getrlimit(RLIMIT_MEMLOCK): %w", err)
	}
	if r.Cur == unix.RLIM_INFINITY {
		return r.Cur, true, nil
	}
	exempt, err := mayLockAnything("/proc/self")
	return r.Cur, exempt, err
}

// mayLockAnything says whether the process has CAP_IPC_LOCK where it counts: in the initial user namespace (capable()
// in the kernel asks for that one, whatever CapEff says inside a container's).
func mayLockAnything(proc string) (bool, error) {
	uidMap, err := readText(proc + "/uid_map")
	if errors.Is(err, os.ErrNotExist) {
		uidMap = "0 0 4294967295" // a kernel without user namespaces has the initial one only
	} else if err != nil {
		return false, fmt.Errorf("numa: user namespace: %w", err)
	}
	if strings.Join(strings.Fields(uidMap), " ") != "0 0 4294967295" {
		return false, nil
	}
	status, err := readText(proc + "/status")
	if err != nil {
		return false, fmt.Errorf("numa: capabilities: %w", err)
	}
	for line := range strings.Lines(status) {
		if hex, ok := strings.CutPrefix(line, "CapEff:"); ok {
			caps, err := strconv.ParseUint(strings.TrimSpace(hex), 16, 64)
			if err != nil {
				return false, fmt.Errorf("numa: capabilities: bad line %q", abbreviate(strings.TrimSpace(line)))
			}
			return caps&(1<<unix.CAP_IPC_LOCK) != 0, nil
		}
	}
	return false, nil
}

// CheckMemlock returns a *MemlockError when fewer than need bytes may be registered. need is the sum over all
// registrations: memory registered with two devices, or in two protection domains, counts twice.
func CheckMemlock(need uint64) error {
	limit, unlimited, err := MemlockLimit()
	if err != nil {
		return err
	}
	return checkMemlock(need, limit, unlimited)
}

func checkMemlock(need, limit uint64, unlimited bool) error {
	if unlimited || need <= limit {
		return nil
	}
	return &MemlockError{Need: need, Limit: limit}
}

// wholeUnits is n bytes rounded down to a unit of which there is at least one: the usual limit is 64 KiB, and "0 MiB"
// would say that there is none.
func wholeUnits(n uint64) string {
	if n < 1<<20 {
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d MiB", n>>20)
}

func roundUp(n, to uint64) uint64 { return (n + to - 1) / to * to }
