//go:build linux

package ibv

import (
	"errors"
	"fmt"
	"strings"
	"syscall"

	"mover/verbs"
)

// Sentinels; test with errors.Is.
var (
	// ErrUnavailable is matched by whatever keeps New from working.
	ErrUnavailable = errors.New("ibv: libibverbs can't be used")
	// ErrNoDevice: the kernel has no device of that name.
	ErrNoDevice = errors.New("ibv: no such RDMA device")
)

// BuildError: this binary was built without the provider.
type BuildError struct {
	Lacks string // "cgo", "infiniband/verbs.h"
}

func (e *BuildError) Error() string {
	return "ibv: this build of mover has no RDMA provider: built without " + e.Lacks +
		"; build it with CGO_ENABLED=1, a C compiler and infiniband/verbs.h (Debian: libibverbs-dev, RHEL: rdma-core-devel)"
}

// Is matches ErrUnavailable.
func (e *BuildError) Is(target error) bool { return target == ErrUnavailable }

// LibraryError: libibverbs cannot be opened, or lacks something.
type LibraryError struct {
	Library string // as configured
	Symbol  string // "ibv_reg_mr@IBVERBS_1.1"; empty when the library was not opened at all
	Reason  string // dlerror(3)
}

func (e *LibraryError) Error() string {
	if e.Symbol != "" {
		return fmt.Sprintf("ibv: %s has no %s: it is too old, or no libibverbs; install another (Debian: libibverbs1, RHEL: libibverbs) or set its path",
			e.Library, e.Symbol)
	}
	return fmt.Sprintf("ibv: %s can't be opened: %s; install it (Debian: libibverbs1 ibverbs-providers, RHEL: libibverbs) or set its path",
		e.Library, e.Reason)
}

// Is matches ErrUnavailable.
func (e *LibraryError) Is(target error) bool { return target == ErrUnavailable }

// DeviceError: a device is there and cannot be opened.
type DeviceError struct {
	Device string // "rxe0"
	Node   string // "/dev/infiniband/uverbs0"; empty when the kernel has none
	Errno  syscall.Errno
	Hint   string // what to do
}

func (e *DeviceError) Error() string {
	s := "ibv: " + e.Device + " can't be opened: "
	if e.Node != "" {
		s += e.Node + ": "
	}
	return s + e.Errno.Error() + ": " + e.Hint
}

// Unwrap gives the errno.
func (e *DeviceError) Unwrap() error { return e.Errno }

// noDevice tells a host without RDMA from a name that is not there.
func noDevice(name string, infos []verbs.DeviceInfo) error {
	if len(infos) == 0 {
		return fmt.Errorf("%w: %q: this host has none at all; load the adapter's driver, or make a software device with "+
			"`modprobe rdma_rxe` and `rdma link add rxe0 type rxe netdev NAME`", ErrNoDevice, name)
	}
	names := make([]string, len(infos))
	for i, info := range infos {
		names[i] = info.Name
	}
	return fmt.Errorf("%w: %q: this host has %s", ErrNoDevice, name, strings.Join(names, ", "))
}
