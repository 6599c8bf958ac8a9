//go:build linux

package soft

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"syscall"

	"mover/verbs"
)

const providerName = "soft"

// ErrCleartext is matched by the errors of New, of CreateAH and of a UC QP's
// transition to RTR, for an address off loopback without Config.AllowCleartext.
var ErrCleartext = errors.New("soft: payload would cross the network in clear text")

// Config is what New needs.
type Config struct {
	// Addresses are local IPv4 or IPv6 addresses; each becomes a device with
	// one port, soft0, soft1, ... in this order. Empty means 127.0.0.1.
	Addresses []netip.Addr
	// AllowCleartext permits addresses off loopback.
	AllowCleartext bool
	// SendBuffer and RecvBuffer are SO_SNDBUF and SO_RCVBUF of every
	// connection, in bytes; -1 leaves one to the kernel's autotuning, which
	// suits a network with a round-trip time, and 0 takes the default: 128 KiB
	// and 1 MiB on a loopback address, autotuning on any other. The kernel
	// caps them at net.core.wmem_max and rmem_max. The sockets of UC and UD
	// QPs, which have no autotuning, take 4 MiB to receive where none is set,
	// and never less than 64 KiB; with CAP_NET_ADMIN rmem_max is no limit.
	SendBuffer, RecvBuffer int
	// CallBytes bounds the payload of one system call, 4 KiB..16 MiB; 0 takes
	// the default.
	CallBytes int
	// Logger gets refused connections and failed set-ups; nil discards.
	Logger *slog.Logger
}

// The defaults of Config, found by measuring on loopback. A small send buffer
// keeps the data in the cache between the sender's copy and the receiver's; a
// larger receive buffer lets the sender go on while the receiver is elsewhere.
// Calls longer than half a MiB gain nothing more, and a stop-the-world would
// wait for them.
const (
	loopbackSendBuffer = 128 << 10
	loopbackRecvBuffer = 1 << 20
	defaultCallBytes   = 512 << 10
)

// Provider lists and opens the soft devices. Its methods may be called from
// any goroutine.
type Provider struct {
	cfg     Config
	devices []verbs.DeviceInfo
}

// New checks cfg and makes a provider; it opens no sockets. Errors name the
// setting: ErrCleartext for an address off loopback, otherwise a bad address
// or size.
func New(cfg Config) (*Provider, error) {
	if len(cfg.Addresses) == 0 {
		cfg.Addresses = []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1})}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.CallBytes == 0 {
		cfg.CallBytes = defaultCallBytes
	}
	if cfg.CallBytes < 4<<10 || cfg.CallBytes > 16<<20 {
		return nil, fmt.Errorf("soft: %d bytes a system call: allowed are 4 KiB to 16 MiB", cfg.CallBytes)
	}
	for _, b := range []int{cfg.SendBuffer, cfg.RecvBuffer} {
		if b < -1 || b > 1<<30 {
			return nil, fmt.Errorf("soft: socket buffer of %d bytes: allowed are -1 (kernel's choice), 0 (default) and up to 1 GiB", b)
		}
	}
	p := &Provider{cfg: cfg}
	p.cfg.Addresses = nil
	seen := map[netip.Addr]bool{}
	for i, a := range cfg.Addresses {
		a = a.Unmap()
		if err := checkAddress(a, cfg.AllowCleartext); err != nil {
			return nil, err
		}
		if seen[a] {
			return nil, fmt.Errorf("soft: address %v is listed twice", a)
		}
		seen[a] = true
		p.cfg.Addresses = append(p.cfg.Addresses, a)
		p.devices = append(p.devices, verbs.DeviceInfo{
			Provider: providerName, Name: providerName + strconv.Itoa(i), Netdev: netdevOf(a),
			NUMANode: 0, Ports: 1, Software: true, Detail: "verbs over TCP and UDP on " + a.String() + ", clear text",
		})
	}
	return p, nil
}

func checkAddress(a netip.Addr, allowCleartext bool) error {
	switch {
	case !a.IsValid() || a.IsUnspecified() || a.IsMulticast():
		return fmt.Errorf("soft: %v is no unicast address of this host; list the addresses to use", a)
	case a.Zone() != "":
		return fmt.Errorf("soft: %v: a GID has no room for a zone; use a global or unique-local address", a)
	case !a.IsLoopback() && !allowCleartext:
		return fmt.Errorf("%w: address %s", ErrCleartext, offLoopback(a))
	}
	return nil
}

// offLoopback says what is wrong with an address, and what to do.
func offLoopback(a netip.Addr) string {
	return a.String() + " is not a loopback address; set `soft.allow_cleartext: true` only if the network is trusted or encrypted below (IPsec, MACsec, WireGuard)"
}

// netdevOf is the interface that has the address, "" when none lists it (as
// 127.0.0.2, which the kernel accepts for all of 127/8).
func netdevOf(a netip.Addr) string {
	ifaces, err := net.Interfaces()
	if err != nil {
		return ""
	}
	for _, i := range ifaces {
		addrs, err := i.Addrs()
		if err != nil {
			continue
		}
		for _, x := range addrs {
			p, err := netip.ParsePrefix(x.String())
			if err != nil {
				continue
			}
			if p.Addr().Unmap() == a || i.Flags&net.FlagLoopback != 0 && p.Contains(a) {
				return i.Name
			}
		}
	}
	return ""
}

// Name is "soft".
func (p *Provider) Name() string { return providerName }

// Devices lists one device for each configured address.
func (p *Provider) Devices() ([]verbs.DeviceInfo, error) {
	return append([]verbs.DeviceInfo(nil), p.devices...), nil
}

// OpenDevice opens a device and listens on an ephemeral TCP port of its
// address. ENODEV for an unknown name; EADDRNOTAVAIL when the address is not
// one of this host's.
func (p *Provider) OpenDevice(name string) (verbs.Context, error) {
	for i, d := range p.devices {
		if d.Name == name {
			return openDevice(p.cfg, d, p.cfg.Addresses[i])
		}
	}
	return nil, &verbs.Error{Op: fmt.Sprintf("open device %q", name), Errno: syscall.ENODEV, Detail: "there is " + p.names()}
}

func (p *Provider) names() string {
	var names []string
	for _, d := range p.devices {
		names = append(names, d.Name)
	}
	return strings.Join(names, ", ")
}
