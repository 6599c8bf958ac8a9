package soft

import (
	"fmt"
	"net/netip"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// batchPackets is how many packets one system call sends or receives.
const batchPackets = 16

// mmsghdr is struct mmsghdr of sendmmsg(2) on 64-bit machines.
type mmsghdr struct {
	hdr unix.Msghdr
	len uint32 // bytes sent or received
	_   uint32
}

// packetStage is where packets are received. The QPs of a CQ share one: it is
// empty between two visits.
type packetStage struct {
	msgs [batchPackets]mmsghdr
	iovs [batchPackets]unix.Iovec
	from [batchPackets]socketAddress
	bufs [batchPackets][packetBytes + maxPayload]byte
}

func newPacketStage() *packetStage {
	s := &packetStage{}
	for i := range s.msgs {
		s.iovs[i].Base = &s.bufs[i][0]
		s.iovs[i].SetLen(len(s.bufs[i]))
		s.msgs[i].hdr.Iov = &s.iovs[i]
		s.msgs[i].hdr.SetIovlen(1)
		s.msgs[i].hdr.Name = (*byte)(unsafe.Pointer(&s.from[i].sa))
	}
	return s
}

// receive is recvmmsg(2) without blocking: the number of packets.
func (s *packetStage) receive(fd int) (int, syscall.Errno) {
	for i := range s.msgs {
		s.msgs[i].hdr.Namelen = uint32(unsafe.Sizeof(s.from[i].sa)) // the kernel has changed it
	}
	for {
		n, _, e := unix.RawSyscall6(unix.SYS_RECVMMSG, uintptr(fd), uintptr(unsafe.Pointer(&s.msgs)),
			batchPackets, unix.MSG_DONTWAIT, 0, 0)
		if e != unix.EINTR {
			return int(n), e
		}
	}
}

// packet is the i-th packet received, nil when it was longer than any of ours.
func (s *packetStage) packet(i int) []byte {
	m := &s.msgs[i]
	if m.hdr.Flags&unix.MSG_TRUNC != 0 {
		return nil
	}
	return s.bufs[i][:m.len]
}

// sendPackets is sendmmsg(2) without blocking. An error is that of the first
// packet; those behind one that fails are not tried.
func sendPackets(fd int, msgs []mmsghdr) (int, syscall.Errno) {
	for {
		n, _, e := unix.RawSyscall6(unix.SYS_SENDMMSG, uintptr(fd), uintptr(unsafe.Pointer(&msgs[0])),
			uintptr(len(msgs)), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
		if e != unix.EINTR {
			return int(n), e
		}
	}
}

// The receive buffer of a datagram socket: what does not fit is lost. The
// kernel doubles the value and charges about 8 KiB for a packet of 4 KiB.
const (
	datagramBuffer      = 4 << 20
	datagramBufferLeast = 64 << 10
)

// openDatagramSocket makes a UDP socket on an ephemeral port of the device's
// address.
func (d *device) openDatagramSocket() (fd int, port uint16, err error) {
	family := unix.AF_INET6
	if d.addr.Is4() {
		family = unix.AF_INET
	}
	fd, err = unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, 0, fmt.Errorf("socket: %w", err)
	}
	if port, err = d.bindDatagram(fd); err != nil {
		unix.Close(fd)
		return -1, 0, err
	}
	return fd, port, nil
}

func (d *device) bindDatagram(fd int) (uint16, error) {
	size := datagramBuffer
	if d.cfg.RecvBuffer > 0 {
		size = max(d.cfg.RecvBuffer, datagramBufferLeast)
	}
	// With CAP_NET_ADMIN it may be more than net.core.rmem_max.
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, size) != nil {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, size); err != nil {
			return 0, fmt.Errorf("SO_RCVBUF: %w", err)
		}
	}
	if d.cfg.SendBuffer > 0 {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, d.cfg.SendBuffer); err != nil {
			return 0, fmt.Errorf("SO_SNDBUF: %w", err)
		}
	}
	var sa unix.Sockaddr = &unix.SockaddrInet6{Addr: d.addr.As16()}
	if d.addr.Is4() {
		sa = &unix.SockaddrInet4{Addr: d.addr.As4()}
	}
	if err := unix.Bind(fd, sa); err != nil {
		return 0, fmt.Errorf("bind %v: %w", d.addr, err)
	}
	sa, err := unix.Getsockname(fd)
	if err != nil {
		return 0, fmt.Errorf("getsockname: %w", err)
	}
	if v4, ok := sa.(*unix.SockaddrInet4); ok {
		return uint16(v4.Port), nil
	}
	return uint16(sa.(*unix.SockaddrInet6).Port), nil
}

// connectDatagram lets the socket hear its peer only.
func connectDatagram(fd int, to netip.AddrPort) error {
	var sa unix.Sockaddr = &unix.SockaddrInet6{Addr: to.Addr().As16(), Port: int(to.Port())}
	if to.Addr().Is4() {
		sa = &unix.SockaddrInet4{Addr: to.Addr().As4(), Port: int(to.Port())}
	}
	return unix.Connect(fd, sa)
}
