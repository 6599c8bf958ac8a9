//go:build linux

package ibv

// #include "shim.h"
import "C"

import (
	"fmt"
	"syscall"

	"mover/verbs"
)

// addressHandle is what a UD send is addressed with.
type addressHandle struct {
	resource
	pd *domain
}

func (p *domain) CreateAH(attr verbs.AHAttr) (verbs.AH, error) {
	const op = "create AH"
	d := p.dev
	port, err := d.QueryPort(attr.Port)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", op, err)
	}
	if err := checkAddress(op, &attr, port); err != nil {
		return nil, err
	}
	a := &addressHandle{pd: p, resource: resource{what: "the AH", count: &d.counts.AH, parents: []*resource{&p.resource}}}
	if err := d.claim(op, &a.resource); err != nil {
		return nil, err
	}
	r := C.mv_create_ah(d.lib.handle, p.ptr, ahAttr(&attr))
	if r.err != 0 {
		d.release(&a.resource)
		return nil, d.failed(op, r.err, d.routeDetail(syscall.Errno(r.err), &attr))
	}
	a.ptr = r.ptr
	return a, nil
}

// Destroy only after the sends that use the handle have completed. Posting with
// a destroyed handle is EINVAL.
func (a *addressHandle) Destroy() error {
	d := a.pd.dev
	return d.destroy("destroy AH", &a.resource, func() C.int { return C.mv_destroy_ah(d.lib.handle, a.ptr) })
}

// checkAddress: RoCE has no other address than a GID, and a port may demand
// the GRH (IBV_QPF_GRH_REQUIRED, ibv_query_port(3)).
func checkAddress(op string, a *verbs.AHAttr, port verbs.PortAttr) error {
	bad := func(format string, args ...any) error {
		return &verbs.Error{Op: op, Errno: syscall.EINVAL, Detail: fmt.Sprintf(format, args...)}
	}
	switch {
	case !a.IsGlobal && (port.GRHRequired || port.LinkLayer == verbs.LinkEthernet):
		return bad("port %d (%v) needs a GID address: IsGlobal with DGID and SGIDIndex", a.Port, port.LinkLayer)
	case a.SGIDIndex < 0 || a.SGIDIndex > maxSGIDIndex:
		return bad("SGID index %d does not fit 8 bits", a.SGIDIndex)
	case a.IsGlobal && a.SGIDIndex >= port.GIDTableLen:
		return bad("SGID index %d of a table of %d", a.SGIDIndex, port.GIDTableLen)
	case a.SL > 15:
		return bad("service level %d does not fit 4 bits", a.SL)
	case a.FlowLabel >= 1<<20:
		return bad("flow label %#x does not fit 20 bits", a.FlowLabel)
	}
	return nil
}

func ahAttr(a *verbs.AHAttr) C.struct_mv_ah_attr {
	r := C.struct_mv_ah_attr{dlid: C.uint16_t(a.DLID), sl: C.uint8_t(a.SL), port: C.uint8_t(a.Port)}
	if a.IsGlobal {
		r.is_global, r.sgid_index, r.hop_limit = 1, C.uint8_t(a.SGIDIndex), C.uint8_t(a.HopLimit)
		r.tclass, r.flow_label = C.uint8_t(a.TClass), C.uint32_t(a.FlowLabel)
		for i, b := range a.DGID {
			r.dgid[i] = C.uint8_t(b)
		}
	}
	return r
}

func ahAttrOf(a *C.struct_mv_ah_attr) verbs.AHAttr {
	r := verbs.AHAttr{DLID: uint16(a.dlid), SL: uint8(a.sl), Port: uint8(a.port), IsGlobal: a.is_global != 0}
	if r.IsGlobal {
		r.SGIDIndex, r.HopLimit, r.TClass, r.FlowLabel = int(a.sgid_index), uint8(a.hop_limit), uint8(a.tclass), uint32(a.flow_label)
		for i, b := range a.dgid {
			r.DGID[i] = byte(b)
		}
	}
	return r
}

// routeDetail explains how a wrong GID shows: the kernel resolves the
// destination while the address is set.
func (d *device) routeDetail(errno syscall.Errno, a *verbs.AHAttr) string {
	what := ""
	switch errno {
	case syscall.ETIMEDOUT:
		what = "no answer to the neighbour request for"
	case syscall.ENETUNREACH, syscall.EHOSTUNREACH:
		what = "no route to"
	case syscall.EINVAL, syscall.ENODEV:
		what = "the driver refused the address or a value: destination"
	default:
		return ""
	}
	from := "?"
	if table, err := d.QueryGIDTable(a.Port); err == nil {
		for _, e := range table {
			if e.Index == a.SGIDIndex {
				from = fmt.Sprintf("%v, %v, %s", e.GID.Addr(), e.Type, e.Netdev)
			}
		}
	}
	if !a.IsGlobal {
		return fmt.Sprintf("%s LID %#x through port %d", what, a.DLID, a.Port)
	}
	return fmt.Sprintf("%s GID %v from SGID index %d (%s): look at addresses, routes and GID types on both sides",
		what, a.DGID.Addr(), a.SGIDIndex, from)
}
