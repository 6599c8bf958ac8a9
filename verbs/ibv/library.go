//go:build linux

package ibv

// #cgo CFLAGS: -O2 -Wall
// #cgo LDFLAGS: -ldl
// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"os"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"mover/verbs"
)

// library is libibverbs, opened. It is never closed: the drivers that it loads
// stay in the process.
type library struct {
	handle C.uintptr_t
	path   string
	iova2  bool // registers with optional access flags (relaxed ordering)
}

func buildLacks() string {
	if C.mv_have_verbs() == 0 {
		return "infiniband/verbs.h"
	}
	return ""
}

func loadLibrary(path string) (*library, error) {
	if lacks := buildLacks(); lacks != "" {
		return nil, &BuildError{Lacks: lacks}
	}
	// dlopen(3) opens a path with a slash as it is, and would wait for the
	// writer of a FIFO. A missing file is its to explain.
	if info, err := os.Stat(path); strings.Contains(path, "/") && err == nil && !info.Mode().IsRegular() {
		return nil, &LibraryError{Library: path, Reason: "not a file"}
	}
	cpath := C.CString(path)
	defer C.free(unsafe.Pointer(cpath))
	r := C.mv_load(cpath)
	text := C.GoString(&r.text[0])
	switch r.failure {
	case C.MV_NO_LIBRARY:
		return nil, &LibraryError{Library: path, Reason: text}
	case C.MV_NO_SYMBOL:
		return nil, &LibraryError{Library: path, Symbol: text}
	}
	return &library{handle: r.lib, path: path, iova2: r.iova2 != 0}, nil
}

func (l *library) openDevice(cfg Config, info verbs.DeviceInfo) (verbs.Context, error) {
	name := C.CString(info.Name)
	defer C.free(unsafe.Pointer(name))
	o := C.mv_open(l.handle, name)
	if o.ctx == 0 {
		return nil, openFailure(cfg, info.Name, o.listed != 0, syscall.Errno(o.err))
	}
	d := &device{cfg: cfg, lib: l, info: info, sys: sysDevice{sys: cfg.Sys, name: info.Name}, ctx: o.ctx,
		asyncFD: int(o.async_fd), vectors: int(o.vectors), cqs: map[uint64]*compQueue{}}
	if err := d.start(); err != nil {
		C.mv_close(l.handle, o.ctx)
		return nil, err
	}
	cfg.Logger.Debug("RDMA device opened", "device", info.Name, "library", l.path, "detail", info.Detail)
	return d, nil
}

// start reads the limits and makes the event descriptors ready.
func (d *device) start() error {
	const op = "open"
	a := C.mv_query_device(d.lib.handle, d.ctx)
	if a.err != 0 {
		return d.failed(op+": query device", a.err, "")
	}
	d.attr = verbs.DeviceAttr{
		MaxMRSize: uint64(a.max_mr_size), MaxQP: int(a.max_qp), MaxQPWR: int(a.max_qp_wr), MaxSGE: int(a.max_sge),
		MaxCQ: int(a.max_cq), MaxCQE: int(a.max_cqe), MaxMR: int(a.max_mr), MaxPD: int(a.max_pd), MaxAH: int(a.max_ah),
		MaxQPRdAtom: int(a.max_qp_rd_atom), PageSizeCap: uint64(a.page_size_cap),
		// No verb tells whether an adapter uses the flag. A software device
		// has no PCIe, and an older library drops it.
		RelaxedOrdering: d.lib.iova2 && !d.info.Software,
	}
	// ibv_get_async_event(3) shows how: non-blocking, and poll(2).
	if err := unix.SetNonblock(d.asyncFD, true); err != nil {
		return &verbs.Error{Op: op + " " + d.info.Name + ": async event descriptor", Errno: errnoOf(err)}
	}
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return &verbs.Error{Op: op + " " + d.info.Name + ": eventfd", Errno: errnoOf(err)}
	}
	d.closeFD = fd
	return nil
}

func errnoOf(err error) syscall.Errno {
	if e, ok := err.(syscall.Errno); ok {
		return e
	}
	return syscall.EIO
}
