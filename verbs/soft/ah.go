//go:build linux

package soft

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"mover/verbs"
)

// socketAddress is a sockaddr_in or a sockaddr_in6 as the kernel takes it.
type socketAddress struct {
	sa  unix.RawSockaddrInet6
	len uint32
}

func newSocketAddress(a netip.AddrPort) (s socketAddress) {
	if a.Addr().Is4() {
		s.len = unix.SizeofSockaddrInet4
		v4 := s.v4()
		v4.Family, v4.Addr = unix.AF_INET, a.Addr().As4()
	} else {
		s.len = unix.SizeofSockaddrInet6
		s.sa.Family, s.sa.Addr = unix.AF_INET6, a.Addr().As16()
	}
	s.setPort(a.Port())
	return s
}

// v4 is the same memory, which is larger than a sockaddr_in, as one.
func (s *socketAddress) v4() *unix.RawSockaddrInet4 {
	return (*unix.RawSockaddrInet4)(unsafe.Pointer(&s.sa))
}

// setPort works on both families: the port is at the same place.
func (s *socketAddress) setPort(port uint16) {
	binary.BigEndian.PutUint16((*[2]byte)(unsafe.Pointer(&s.sa.Port))[:], port)
}

func (s *socketAddress) port() uint16 {
	return binary.BigEndian.Uint16((*[2]byte)(unsafe.Pointer(&s.sa.Port))[:])
}

// gid is the address as a GID.
func (s *socketAddress) gid() verbs.GID {
	if s.sa.Family == unix.AF_INET {
		return verbs.GIDFromAddr(netip.AddrFrom4(s.v4().Addr))
	}
	return verbs.GIDFromAddr(netip.AddrFrom16(s.sa.Addr))
}

// addressHandle is where a UD send goes to, but for the port, which the QPN
// names.
type addressHandle struct {
	pd   *domain
	to   socketAddress
	gone atomic.Bool
}

// CreateAH refuses an address off loopback unless the configuration allows
// clear text; that error is ErrCleartext and EINVAL.
func (p *domain) CreateAH(attr verbs.AHAttr) (verbs.AH, error) {
	const op = "create AH"
	d := p.dev
	if attr.Port != 1 {
		return nil, &verbs.Error{Op: op, Errno: syscall.EINVAL, Detail: fmt.Sprintf("port %d of 1", attr.Port)}
	}
	if err := d.checkAV(op, &attr); err != nil {
		return nil, err
	}
	if err := d.checkCleartext(op, attr.DGID.Addr()); err != nil {
		return nil, err
	}
	h := &addressHandle{pd: p, to: newSocketAddress(netip.AddrPortFrom(attr.DGID.Addr(), 0))}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.admit(op, p.freed, d.counts.AH, maxAH); err != nil {
		return nil, err
	}
	p.ahs++
	d.counts.AH++
	return h, nil
}

// Destroy may be called while WRs that use the handle are outstanding: they
// have a copy of the address. Posting with a destroyed handle is EINVAL.
func (h *addressHandle) Destroy() error {
	d := h.pd.dev
	d.mu.Lock()
	defer d.mu.Unlock()
	if h.gone.Swap(true) {
		return &verbs.Error{Op: "destroy AH", Errno: syscall.EINVAL, Detail: "already destroyed"}
	}
	h.pd.ahs--
	d.counts.AH--
	return nil
}

// destination is where the datagram of a UD send goes.
type destination struct {
	addr      socketAddress
	qpn, qkey uint32
}

// take copies what a WR says of it.
func (d *destination) take(pd *domain, wr *verbs.SendWR) error {
	h, ok := wr.AH.(*addressHandle)
	switch {
	case !ok || h == nil || h.pd != pd || h.gone.Load():
		return errSendAH
	case wr.RemoteQPN >= 1<<24:
		return errSendQPN
	}
	*d = destination{addr: h.to, qpn: wr.RemoteQPN, qkey: wr.RemoteQKey}
	d.addr.setPort(portOfQPN(wr.RemoteQPN))
	return nil
}

// portOfQPN is the UDP port of a UD QP: who sends a datagram knows no more of
// a QP than its GID and its number. The upper 8 bits are random, so that a QP
// that takes the port of an earlier one is not taken for it.
func portOfQPN(qpn uint32) uint16 { return uint16(qpn) }

// checkCleartext refuses to send where the configuration does not allow it.
func (d *device) checkCleartext(op string, to netip.Addr) error {
	if to.IsLoopback() || d.cfg.AllowCleartext {
		return nil
	}
	return fmt.Errorf("%w: %w", &verbs.Error{Op: op, Errno: syscall.EINVAL, Detail: offLoopback(to)}, ErrCleartext)
}
