//go:build linux

package ibv

// #include "shim.h"
import "C"

import (
	"fmt"
	"os"
	"syscall"
	"unsafe"

	"mover/verbs"
)

const knownAccess = verbs.AccessLocalWrite | verbs.AccessRemoteWrite | verbs.AccessRemoteRead |
	verbs.AccessRemoteAtomic | verbs.AccessRelaxedOrdering

// region is a registered memory region.
type region struct {
	resource
	pd           *domain
	lkey, rkey   uint32
	addr, length uint64
}

// checkRegion applies the rules that must not be left to a driver: some
// register less than was asked for.
func (d *device) checkRegion(op string, addr, length uint64, access verbs.Access) error {
	bad := func(format string, args ...any) error {
		return &verbs.Error{Op: op, Errno: syscall.EINVAL, Detail: fmt.Sprintf(format, args...)}
	}
	page := uint64(os.Getpagesize())
	switch {
	case length == 0 || addr%page != 0 || length%page != 0:
		return bad("%d bytes at %#x are not whole pages of %d", length, addr, page)
	case length > d.attr.MaxMRSize:
		return bad("%d bytes are more than max_mr_size of %s, %d: register it in pieces", length, d.info.Name, d.attr.MaxMRSize)
	case access&^knownAccess != 0:
		return bad("unknown access flags %#x", uint32(access&^knownAccess))
	case access&(verbs.AccessRemoteWrite|verbs.AccessRemoteAtomic) != 0 && access&verbs.AccessLocalWrite == 0:
		return bad("remote write and remote atomic need local write")
	}
	return nil
}

func (p *domain) RegMR(mem []byte, access verbs.Access) (verbs.MR, error) {
	const op = "register MR"
	d := p.dev
	addr, length := uint64(uintptr(unsafe.Pointer(unsafe.SliceData(mem)))), uint64(len(mem))
	if err := d.checkRegion(op, addr, length, access); err != nil {
		return nil, err
	}
	m := &region{pd: p, resource: resource{what: fmt.Sprintf("the MR of %s", size(length)), count: &d.counts.MR, parents: []*resource{&p.resource}}}
	if err := d.claim(op, &m.resource); err != nil {
		return nil, err
	}
	r := C.mv_reg_mr(d.lib.handle, p.ptr, C.uintptr_t(addr), C.uint64_t(length), C.uint32_t(access))
	if r.err != 0 {
		d.release(&m.resource)
		return nil, d.registerFailed(op, r.err, length)
	}
	m.ptr, m.lkey, m.rkey, m.addr, m.length = r.ptr, uint32(r.lkey), uint32(r.rkey), uint64(r.addr), uint64(r.length)
	d.charge(length, true)
	if m.addr != addr || m.length != length {
		// Left alone it would show as REM_ACCESS_ERR at the peer.
		err := &verbs.Error{Op: op + " on " + d.info.Name, Errno: syscall.EIO,
			Detail: fmt.Sprintf("the driver registered %d bytes at %#x, not %d at %#x", m.length, m.addr, length, addr)}
		m.length = length // what charge counted
		if e := m.Dereg(); e != nil {
			d.cfg.Logger.Error("deregistering a region of the wrong size", "device", d.info.Name, "error", e)
		}
		return nil, err
	}
	return m, nil
}

func (d *device) registerFailed(op string, errno C.int, length uint64) error {
	detail := size(length)
	if syscall.Errno(errno) == syscall.ENOMEM {
		d.mu.Lock()
		have := d.registered
		d.mu.Unlock()
		detail = memlockDetail(memlockLimit(), length, have)
	}
	return d.failed(op, errno, detail)
}

func (d *device) charge(length uint64, add bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if add {
		d.registered += length
	} else {
		d.registered -= length
	}
}

func (m *region) PD() verbs.PD   { return m.pd }
func (m *region) LKey() uint32   { return m.lkey }
func (m *region) RKey() uint32   { return m.rkey }
func (m *region) Addr() uint64   { return m.addr }
func (m *region) Length() uint64 { return m.length }

func (m *region) Dereg() error {
	d := m.pd.dev
	err := d.destroy("deregister MR", &m.resource, func() C.int { return C.mv_dereg_mr(d.lib.handle, m.ptr) })
	if err == nil {
		d.charge(m.length, false)
	}
	return err
}
