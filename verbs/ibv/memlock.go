//go:build linux

package ibv

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// memlockDetail explains ENOMEM from a registration of need bytes on top of
// have bytes registered through the same device. limit is RLIMIT_MEMLOCK's soft
// limit in bytes. The kernel charges every registration again, also of the same
// memory (ib_umem_get).
func memlockDetail(limit, need, have uint64) string {
	if limit == unix.RLIM_INFINITY {
		return fmt.Sprintf("%s more on top of %s; the memlock limit is unlimited, so the host is out of memory or the device out of "+
			"regions or translation entries: use larger pages or less memory", size(need), size(have))
	}
	return fmt.Sprintf("%s more on top of %s registered through this device, and the memlock limit is %s: raise it "+
		"(systemd: LimitMEMLOCK=infinity; container: --ulimit memlock=-1; shell: ulimit -l unlimited)",
		size(need), size(have), size(limit))
}

// memlockLimit is the soft limit in bytes.
func memlockLimit() uint64 {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &r); err != nil {
		return unix.RLIM_INFINITY // cannot fail (getrlimit(2)); then it is not the reason
	}
	return r.Cur
}

func size(n uint64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%d KiB", (n+1023)/1024)
}

func limitText(limit uint64) string {
	if limit == unix.RLIM_INFINITY {
		return "unlimited"
	}
	return size(limit)
}
