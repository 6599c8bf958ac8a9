package fabric

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"mover/verbs"
)

// ErrNoPort is matched when there is no port as asked for; the text says what
// there is.
var ErrNoPort = errors.New("no port to measure")

// Port is an open device and one of its ports. Its fields are read only.
type Port struct {
	Context  verbs.Context
	Info     verbs.DeviceInfo
	Number   uint8
	Attr     verbs.PortAttr
	GID      verbs.GIDEntry
	device   verbs.DeviceAttr
	provider string
}

// GIDChoice says which entry of the GID table is used: by its index, or, when
// that is negative, by type and address. The zero value is index 0.
type GIDChoice struct {
	Index int
	Wish  verbs.GIDWish
}

// BestGID leaves the choice to verbs.ChooseGID.
var BestGID = GIDChoice{Index: -1}

// OpenPort opens a device of the provider ("" takes the first with an active
// port), a port of it (0: the first active one) and an entry of its GID table.
// The caller closes it. Any goroutine may call it.
func OpenPort(p verbs.Provider, device string, number uint8, gid GIDChoice) (*Port, error) {
	infos, err := p.Devices()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoPort, err)
	}
	var reasons []string
	for _, info := range infos {
		if device != "" && info.Name != device {
			continue
		}
		port, err := openOn(p, info, number, gid)
		if err == nil {
			return port, nil
		}
		reasons = append(reasons, err.Error())
	}
	if len(reasons) == 0 {
		var names []string
		for _, info := range infos {
			names = append(names, info.Name)
		}
		return nil, fmt.Errorf("%w: provider %s has no device %q; it has: %s; choose with -d, see `mover devices`",
			ErrNoPort, p.Name(), device, strings.Join(names, ", "))
	}
	return nil, fmt.Errorf("%w: %s", ErrNoPort, strings.Join(reasons, "; "))
}

func openOn(p verbs.Provider, info verbs.DeviceInfo, number uint8, gid GIDChoice) (*Port, error) {
	ctx, err := p.OpenDevice(info.Name)
	if err != nil {
		return nil, fmt.Errorf("device %s: %w", info.Name, err)
	}
	port := &Port{Context: ctx, Info: info, provider: p.Name()}
	if port.device, err = ctx.QueryDevice(); err == nil {
		err = port.choose(number, gid)
	}
	if err != nil {
		return nil, errors.Join(err, ctx.Close())
	}
	return port, nil
}

func (p *Port) choose(number uint8, gid GIDChoice) error {
	if int(number) > p.Info.Ports {
		return fmt.Errorf("device %s has no port %d, but %d ports", p.Info.Name, number, p.Info.Ports)
	}
	first, last := 1, p.Info.Ports
	if number > 0 {
		first, last = int(number), int(number)
	}
	var states []string
	for n := first; n <= last; n++ {
		attr, err := p.Context.QueryPort(uint8(n))
		if err != nil {
			return fmt.Errorf("device %s port %d: %w", p.Info.Name, n, err)
		}
		if attr.State == verbs.PortActive {
			p.Number, p.Attr = uint8(n), attr
			return p.chooseGID(gid)
		}
		states = append(states, fmt.Sprintf("device %s port %d is %v", p.Info.Name, n, attr.State))
	}
	return fmt.Errorf("%s; it must be ACTIVE: check cable, switch and `ip link`", strings.Join(states, ", "))
}

func (p *Port) chooseGID(choice GIDChoice) error {
	table, err := p.Context.QueryGIDTable(p.Number)
	if err != nil {
		return fmt.Errorf("device %s port %d: %w", p.Info.Name, p.Number, err)
	}
	if choice.Index < 0 {
		p.GID, err = verbs.ChooseGID(table, choice.Wish)
		if err != nil {
			return fmt.Errorf("device %s port %d: %w", p.Info.Name, p.Number, err)
		}
		return nil
	}
	for _, e := range table {
		if e.Index == choice.Index {
			p.GID = e
			return nil
		}
	}
	return fmt.Errorf("device %s port %d has no GID %d; leave -x away to have one chosen", p.Info.Name, p.Number, choice.Index)
}

// Close closes the device. It fails while something of it is open, which a
// run that ended in an orderly way never leaves.
func (p *Port) Close() error { return p.Context.Close() }

// isGlobal reports whether addresses of the port carry a GID: always on RoCE,
// on InfiniBand where the port says so (ibv_query_port(3)).
func (p *Port) isGlobal() bool { return p.Attr.LinkLayer != verbs.LinkInfiniBand || p.Attr.GRHRequired }

// relaxed reports whether memory is registered with PCIe relaxed ordering. It
// is safe for what is checked here: a receive completion still covers all that
// was written before it.
func (p *Port) relaxed(c *Config) bool {
	return p.device.RelaxedOrdering && !p.Info.Software && !c.StrictOrdering
}

// drivenByPolling reports whether nothing moves unless the CQ is polled.
func (p *Port) drivenByPolling() bool { return p.provider != "ibv" }

// emulated reports whether the device is the kernel's own software behind the
// verbs of hardware: Soft-RoCE.
func (p *Port) emulated() bool { return p.Info.Software && !p.drivenByPolling() }

// ackTimeout is the exponent that RC QPs get. Where the receiver's side of the
// protocol is a thread of the kernel, 67 ms pass with nothing lost.
func (p *Port) ackTimeout(c *Config) int {
	switch {
	case c.AckTimeout > 0:
		return c.AckTimeout
	case p.emulated():
		return ackEmulated
	}
	return ackTimeout
}

// ackTime is the time that an exponent stands for, up to MaxAckTimeout; 0 for
// what is out of range.
func ackTime(n int) time.Duration {
	if n < 1 || n > MaxAckTimeout {
		return 0
	}
	return 4096 * time.Nanosecond << n
}

func (p *Port) terms(mtu verbs.MTU) portTerms {
	return portTerms{Provider: p.provider, Device: p.Info.Name, LinkLayer: uint8(p.Attr.LinkLayer),
		GIDType: uint8(p.GID.Type), GID: gidHex(p.GID.GID), MTU: uint8(mtu)}
}

// av addresses the other side's end.
func (p *Port) av(e *end) verbs.AHAttr {
	return verbs.AHAttr{DLID: e.LID, Port: p.Number, IsGlobal: p.isGlobal(), DGID: verbs.GID(e.GID),
		SGIDIndex: p.GID.Index, HopLimit: 64}
}
