//go:build linux

package ibv

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
)

// Hints for people, one a cause.
const (
	hintNoUverbs = "the kernel has no user-space verbs for it: run `modprobe ib_uverbs`"
	hintNoNode   = "the node is missing: in a container pass --device /dev/infiniband, on a host restart udev or `modprobe -r ib_uverbs && modprobe ib_uverbs`"
	hintMode     = "mover's user may not open it: add it to the node's group (rdma), or set the mode with a udev rule"
	hintCgroup   = "the container may not open it: pass --device /dev/infiniband"
	hintNoDriver = "libibverbs has no driver for it: install the user-space drivers (Debian: ibverbs-providers, RHEL: libibverbs)"
	hintUnknown  = "see `dmesg` for what the driver says"
)

// checkNode says why a device that sysfs lists cannot be opened, as far as the
// node in /dev tells; nil when the node can be opened.
func checkNode(cfg Config, name string) *DeviceError {
	e := &DeviceError{Device: name, Errno: syscall.ENOENT, Hint: hintNoUverbs}
	node := sysDevice{sys: cfg.Sys, name: name}.uverbs()
	if node == "" {
		return e
	}
	e.Node = filepath.Join(cfg.Dev, "infiniband", node)
	// Opening a node makes no resources (ib_uverbs_open), so trying is harmless.
	f, err := os.OpenFile(e.Node, os.O_RDWR|syscall.O_CLOEXEC, 0)
	if err == nil {
		f.Close()
		return nil
	}
	errors.As(err, &e.Errno)
	e.Hint = hintFor(e.Errno)
	return e
}

// hintFor is what to do about an errno of open(2).
func hintFor(errno syscall.Errno) string {
	switch errno {
	case syscall.ENOENT:
		return hintNoNode
	case syscall.EACCES:
		return hintMode
	case syscall.EPERM: // the device cgroup's answer
		return hintCgroup
	}
	return hintUnknown
}

// openFailure explains a device that libibverbs did not open: listed tells
// whether it knew it.
func openFailure(cfg Config, name string, listed bool, errno syscall.Errno) *DeviceError {
	if e := checkNode(cfg, name); e != nil {
		return e
	}
	e := &DeviceError{Device: name, Errno: errno, Hint: hintUnknown,
		Node: filepath.Join(cfg.Dev, "infiniband", sysDevice{sys: cfg.Sys, name: name}.uverbs())}
	if !listed && errno == syscall.ENODEV { // there was a list, without it
		e.Hint = hintNoDriver
	}
	return e
}
