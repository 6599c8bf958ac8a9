package sim

import (
	"os"
	"slices"
	"syscall"
	"time"
	"unsafe"

	"mover/verbs"
)

// context is an open device.
type context struct {
	f      *Fabric
	dev    *device
	counts verbs.Counts
	async  []verbs.AsyncEvent
	closed bool

	losing func(n int) bool // of LosePackets, or nil
	left   int              // packets since then
}

func (c *context) Device() verbs.DeviceInfo { return c.dev.info() }

// usable refuses what neither a closed nor a dead device can do.
func (c *context) usable(op string) error {
	if c.closed {
		return verbs.ErrClosed
	}
	if c.dev.fatal {
		return &verbs.Error{Op: op, Errno: syscall.EIO, Detail: "the device had a fatal error"}
	}
	return nil
}

func (c *context) QueryDevice() (verbs.DeviceAttr, error) {
	if err := c.usable("query device"); err != nil {
		return verbs.DeviceAttr{}, err
	}
	return c.dev.attr(), nil
}

func (c *context) port(op string, num uint8) (*port, error) {
	if err := c.usable(op); err != nil {
		return nil, err
	}
	if num < 1 || int(num) > len(c.dev.ports) {
		return nil, &verbs.Error{Op: op, Errno: syscall.EINVAL, Detail: "no such port"}
	}
	return c.dev.ports[num-1], nil
}

func (c *context) QueryPort(num uint8) (verbs.PortAttr, error) {
	p, err := c.port("query port", num)
	if err != nil {
		return verbs.PortAttr{}, err
	}
	return p.attr(), nil
}

func (c *context) QueryGIDTable(num uint8) ([]verbs.GIDEntry, error) {
	p, err := c.port("query GID table", num)
	if err != nil {
		return nil, err
	}
	return p.table(), nil
}

func (c *context) AllocPD() (verbs.PD, error) {
	if err := c.usable("alloc PD"); err != nil {
		return nil, err
	}
	c.counts.PD++
	return &pd{ctx: c}, nil
}

func (c *context) CreateCompChannel() (verbs.CompChannel, error) {
	if err := c.usable("create completion channel"); err != nil {
		return nil, err
	}
	c.counts.CompChannel++
	return &channel{ctx: c}, nil
}

// GetAsyncEvent never waits, since only the caller can let time pass: without
// an event it is ErrTimeout at once.
func (c *context) GetAsyncEvent(time.Duration) (verbs.AsyncEvent, error) {
	if c.closed {
		return verbs.AsyncEvent{}, verbs.ErrClosed
	}
	if len(c.async) == 0 {
		return verbs.AsyncEvent{}, verbs.ErrTimeout
	}
	ev := c.async[0]
	c.async = c.async[1:]
	return ev, nil
}

// notify delivers an event after a while: it races with the completions.
func (c *context) notify(ev verbs.AsyncEvent) {
	c.f.after(c.f.delay(c.f.opt.MaxCompletionDelay), "async "+ev.Type.String(), ev.QPN, func() {
		c.async = append(c.async, ev)
	})
}

func (c *context) Counts() verbs.Counts { return c.counts }

func (c *context) Close() error {
	if c.closed {
		return verbs.ErrClosed
	}
	if c.counts != (verbs.Counts{}) {
		return busy("close device", "objects are open")
	}
	c.closed = true
	c.dev.contexts = slices.DeleteFunc(c.dev.contexts, func(o *context) bool { return o == c })
	return nil
}

func busy(op, detail string) error {
	return &verbs.Error{Op: op, Errno: syscall.EBUSY, Detail: detail}
}

func invalid(op, detail string) error {
	return &verbs.Error{Op: op, Errno: syscall.EINVAL, Detail: detail}
}

// pd is a protection domain.
type pd struct {
	ctx   *context
	inUse int
	gone  bool
}

func (p *pd) Context() verbs.Context { return p.ctx }

func (p *pd) usable(op string) error {
	if p.gone {
		return invalid(op, "the PD is deallocated")
	}
	return p.ctx.usable(op)
}

func (p *pd) Dealloc() error {
	if p.gone {
		return invalid("dealloc PD", "it is deallocated")
	}
	if p.inUse > 0 {
		return busy("dealloc PD", "it has MRs, QPs or AHs")
	}
	p.gone = true
	p.ctx.counts.PD--
	return nil
}

// mr is a memory region.
type mr struct {
	pd         *pd
	mem        []byte
	addr       uint64
	access     verbs.Access
	lkey, rkey uint32
	dead       bool
}

func (p *pd) RegMR(mem []byte, access verbs.Access) (verbs.MR, error) {
	if err := p.usable("register MR"); err != nil {
		return nil, err
	}
	page := uint64(os.Getpagesize())
	addr := uint64(uintptr(unsafe.Pointer(unsafe.SliceData(mem))))
	remote := verbs.AccessRemoteWrite | verbs.AccessRemoteAtomic
	switch {
	case len(mem) == 0:
		return nil, invalid("register MR", "no memory")
	case addr%page != 0 || uint64(len(mem))%page != 0:
		return nil, invalid("register MR", "not whole pages")
	case access&remote != 0 && access&verbs.AccessLocalWrite == 0:
		return nil, invalid("register MR", "remote write or atomic without local write")
	case uint64(len(mem)) > p.ctx.dev.cfg.MaxMRSize:
		return nil, invalid("register MR", "longer than max_mr_size")
	}
	d := p.ctx.dev
	m := &mr{pd: p, mem: mem, addr: addr, access: access, lkey: p.ctx.f.key(), rkey: p.ctx.f.key()}
	d.lkeys[m.lkey], d.rkeys[m.rkey] = m, m
	d.regions = append(d.regions, m)
	p.inUse++
	p.ctx.counts.MR++
	return m, nil
}

// key draws a number that no key and no QPN has had before.
func (f *Fabric) key() uint32 {
	for {
		k := f.rng.Uint32()
		if k != 0 && !f.used[k] {
			f.used[k] = true
			return k
		}
	}
}

func (m *mr) PD() verbs.PD   { return m.pd }
func (m *mr) LKey() uint32   { return m.lkey }
func (m *mr) RKey() uint32   { return m.rkey }
func (m *mr) Addr() uint64   { return m.addr }
func (m *mr) Length() uint64 { return uint64(len(m.mem)) }

// slice is the n bytes at addr, or nil when they are not all inside. The sum
// addr + n is never formed: it may wrap.
func (m *mr) slice(addr uint64, n uint32) []byte {
	size := uint64(len(m.mem))
	if addr < m.addr || addr-m.addr > size || uint64(n) > size-(addr-m.addr) {
		return nil
	}
	off := addr - m.addr
	return m.mem[off : off+uint64(n) : off+uint64(n)]
}

func (m *mr) Dereg() error {
	if m.dead {
		return invalid("deregister MR", "it is deregistered")
	}
	d := m.pd.ctx.dev
	for _, q := range d.qps {
		q.deregistering(m)
	}
	m.dead = true
	d.regions = slices.DeleteFunc(d.regions, func(o *mr) bool { return o == m })
	delete(d.lkeys, m.lkey)
	delete(d.rkeys, m.rkey)
	d.revoked[m.rkey] = true
	m.pd.inUse--
	m.pd.ctx.counts.MR--
	return nil
}
