//go:build linux

package soft

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"mover/verbs"
)

// The limits of a device.
const (
	maxMRBytes  = 1 << 42
	maxMR       = 1 << 16
	maxPD       = 1 << 12
	maxQP       = 1 << 12
	maxCQ       = 1 << 12
	maxCQE      = 1 << 20
	maxAH       = 1 << 16
	maxQPWR     = 1 << 14
	maxSGE      = 16
	maxInline   = 512
	maxMsg      = 1 << 31
	maxRdAtomic = 16

	knownAccess = verbs.AccessLocalWrite | verbs.AccessRemoteWrite | verbs.AccessRemoteRead |
		verbs.AccessRemoteAtomic | verbs.AccessRelaxedOrdering
)

// device is an open device. Its methods may be called from any goroutine.
type device struct {
	cfg    Config
	info   verbs.DeviceInfo
	addr   netip.Addr
	gid    verbs.GID
	events events

	listener *net.TCPListener
	port     uint16
	halfOpen chan struct{}      // one token for each handshake in progress
	ctx      context.Context    // ends at Close
	stop     context.CancelFunc // ends ctx
	work     sync.WaitGroup     // accept loop and set-ups

	rnrEvents atomic.Uint64
	drops     dropCounts
	loss      atomic.Pointer[lossRule]

	mu     sync.Mutex
	counts verbs.Counts
	keys   keySource
	setups map[uint32]*setup // by QPN; nil for UC and UD
	closed bool
}

func openDevice(cfg Config, info verbs.DeviceInfo, addr netip.Addr) (verbs.Context, error) {
	d := &device{cfg: cfg, info: info, addr: addr, gid: verbs.GIDFromAddr(addr),
		halfOpen: make(chan struct{}, maxHalfOpen), setups: map[uint32]*setup{},
		keys: keySource{live: map[uint32]struct{}{}}}
	d.events.init()
	d.ctx, d.stop = context.WithCancel(context.Background())
	lc := net.ListenConfig{Control: d.control}
	l, err := lc.Listen(d.ctx, "tcp", netip.AddrPortFrom(addr, 0).String())
	if err != nil {
		d.stop()
		return nil, fmt.Errorf("soft: opening %s: %w", info.Name, err)
	}
	d.listener = l.(*net.TCPListener)
	d.port = d.listener.Addr().(*net.TCPAddr).AddrPort().Port()
	d.work.Add(1)
	go d.accept()
	return d, nil
}

func (d *device) Device() verbs.DeviceInfo { return d.info }

func (d *device) QueryDevice() (verbs.DeviceAttr, error) {
	return verbs.DeviceAttr{
		MaxMRSize: maxMRBytes, MaxQP: maxQP, MaxQPWR: maxQPWR, MaxSGE: maxSGE, MaxCQ: maxCQ, MaxCQE: maxCQE,
		MaxMR: maxMR, MaxPD: maxPD, MaxAH: maxAH, MaxQPRdAtom: maxRdAtomic, PageSizeCap: ^uint64(os.Getpagesize() - 1),
	}, nil
}

func (d *device) QueryPort(port uint8) (verbs.PortAttr, error) {
	if err := d.checkPort("query port", port); err != nil {
		return verbs.PortAttr{}, err
	}
	return verbs.PortAttr{State: verbs.PortActive, LinkLayer: verbs.LinkEthernet, MaxMTU: verbs.MTU4096,
		ActiveMTU: verbs.MTU4096, GIDTableLen: 1, PKeyTableLen: 1, GRHRequired: true}, nil
}

func (d *device) QueryGIDTable(port uint8) ([]verbs.GIDEntry, error) {
	if err := d.checkPort("query GID table", port); err != nil {
		return nil, err
	}
	return []verbs.GIDEntry{{GID: d.gid, Type: verbs.GIDSoft, Netdev: d.info.Netdev}}, nil
}

func (d *device) checkPort(op string, port uint8) error {
	if port != 1 {
		return &verbs.Error{Op: op, Errno: syscall.EINVAL, Detail: fmt.Sprintf("port %d of 1", port)}
	}
	return nil
}

// admit refuses a new resource on a closed device, below a freed parent, or
// beyond the limit. The caller holds d.mu.
func (d *device) admit(op string, parentGone bool, have, limit int) error {
	switch {
	case d.closed:
		return fmt.Errorf("%s: %w", op, verbs.ErrClosed)
	case parentGone:
		return &verbs.Error{Op: op, Errno: syscall.EINVAL, Detail: "what it belongs to was freed"}
	case have >= limit:
		return &verbs.Error{Op: op, Errno: syscall.ENOMEM, Detail: fmt.Sprintf("%d is the limit of a device", limit)}
	}
	return nil
}

func (d *device) AllocPD() (verbs.PD, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.admit("allocate PD", false, d.counts.PD, maxPD); err != nil {
		return nil, err
	}
	p := &domain{dev: d}
	p.keys.init()
	d.counts.PD++
	return p, nil
}

// addQP gives the QP a number, random so that one of an earlier connection
// does not come back soon. The caller holds d.mu.
func (d *device) addQP(s *setup) uint32 {
	var b [4]byte
	for {
		rand.Read(b[:]) // never fails (crypto/rand)
		n := binary.LittleEndian.Uint32(b[:]) & (1<<24 - 1)
		// 0 and 1 are the management QPs on InfiniBand.
		if _, used := d.setups[n]; n > 1 && !used {
			d.setups[n] = s
			return n
		}
	}
}

func (d *device) setupOf(qpn uint32) *setup {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.setups[qpn]
}

func (d *device) GetAsyncEvent(timeout time.Duration) (verbs.AsyncEvent, error) {
	return d.events.get(timeout)
}

// RNREvents counts the messages that found no receive WR posted at this
// device. Reach it with an interface assertion on the verbs.Context.
func (d *device) RNREvents() uint64 { return d.rnrEvents.Load() }

func (d *device) Counts() verbs.Counts {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.counts
}

func (d *device) Close() error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return fmt.Errorf("close %s: %w", d.info.Name, verbs.ErrClosed)
	}
	if d.counts != (verbs.Counts{}) {
		c := d.counts
		d.mu.Unlock()
		return &verbs.Error{Op: "close " + d.info.Name, Errno: syscall.EBUSY, Detail: fmt.Sprintf("still open: %+v", c)}
	}
	d.closed = true
	d.mu.Unlock()
	d.stop()
	err := d.listener.Close()
	d.work.Wait() // every set-up watches ctx
	close(d.events.closed)
	if errors.Is(err, net.ErrClosed) {
		err = nil
	}
	return err
}
