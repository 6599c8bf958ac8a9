//go:build linux

package ibv

// #include "shim.h"
import "C"

import (
	"mover/verbs"
)

// domain is a protection domain.
type domain struct {
	resource
	dev *device
}

func (d *device) AllocPD() (verbs.PD, error) {
	const op = "allocate PD"
	p := &domain{dev: d, resource: resource{what: "the PD", count: &d.counts.PD}}
	if err := d.claim(op, &p.resource); err != nil {
		return nil, err
	}
	r := C.mv_alloc_pd(d.lib.handle, d.ctx)
	if r.err != 0 {
		d.release(&p.resource)
		return nil, d.failed(op, r.err, "")
	}
	p.ptr = r.ptr
	return p, nil
}

func (p *domain) Context() verbs.Context { return p.dev }

func (p *domain) Dealloc() error {
	return p.dev.destroy("dealloc PD", &p.resource, func() C.int { return C.mv_dealloc_pd(p.dev.lib.handle, p.ptr) })
}
