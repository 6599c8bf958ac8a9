//go:build linux

package ibv

// #include "shim.h"
import "C"

import (
	"golang.org/x/sys/unix"

	"mover/verbs"
)

// compChannel is a completion channel.
type compChannel struct {
	resource
	dev *device
	fd  int
}

func (d *device) CreateCompChannel() (verbs.CompChannel, error) {
	const op = "create completion channel"
	c := &compChannel{dev: d, resource: resource{what: "the completion channel", count: &d.counts.CompChannel}}
	if err := d.claim(op, &c.resource); err != nil {
		return nil, err
	}
	r := C.mv_create_channel(d.lib.handle, d.ctx)
	if r.err != 0 {
		d.release(&c.resource)
		return nil, d.failed(op, r.err, "")
	}
	c.ptr, c.fd = r.ptr, int(r.fd)
	// ibv_get_cq_event(3) shows how: Drain must not block.
	if err := unix.SetNonblock(c.fd, true); err != nil {
		if e := c.Destroy(); e != nil {
			d.cfg.Logger.Error("destroying a completion channel", "device", d.info.Name, "error", e)
		}
		return nil, &verbs.Error{Op: op + " on " + d.info.Name, Errno: errnoOf(err)}
	}
	return c, nil
}

func (c *compChannel) FD() int { return c.fd }

// Drain may be called from any goroutine until Destroy.
func (c *compChannel) Drain() error {
	if errno := C.mv_drain_channel(c.dev.lib.handle, c.ptr); errno != 0 {
		return c.dev.failed("drain completion channel", errno, "")
	}
	return nil
}

func (c *compChannel) Destroy() error {
	return c.dev.destroy("destroy completion channel", &c.resource, func() C.int {
		return C.mv_destroy_channel(c.dev.lib.handle, c.ptr)
	})
}
