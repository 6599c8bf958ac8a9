package soft

import (
	"cmp"
	"fmt"
	"net"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// iovMax bounds the pieces of one system call; the kernel's limit is 1024
// (UIO_MAXIOV), and beyond some 8 KiB of iovec it allocates.
const iovMax = 64

// vector is a scatter list under construction. It lives inside a QP, so
// building one allocates nothing, and it holds the regions it points into.
type vector struct {
	iov   [iovMax]unix.Iovec
	n     int
	bytes int
	held  [iovMax]*memory
	nheld int
}

func (v *vector) full() bool { return v.n == iovMax }

// add appends a piece that belongs to the QP itself.
func (v *vector) add(b []byte) {
	if len(b) == 0 {
		return
	}
	v.iov[v.n].Base = unsafe.SliceData(b)
	v.iov[v.n].SetLen(len(b))
	v.n++
	v.bytes += len(b)
}

// addMemory appends a piece of m and enters it; false when m is gone.
func (v *vector) addMemory(m *memory, b []byte) bool {
	if v.nheld == 0 || v.held[v.nheld-1] != m {
		if !m.enter() {
			return false
		}
		v.held[v.nheld] = m
		v.nheld++
	}
	v.add(b)
	return true
}

// reset leaves the regions.
func (v *vector) reset() {
	for i := range v.nheld {
		v.held[i].leave()
		v.held[i] = nil
	}
	v.n, v.bytes, v.nheld = 0, 0, 0
}

// sendVector is sendmsg(2) without blocking and without SIGPIPE.
func sendVector(fd int, v *vector, msg *unix.Msghdr) (int, syscall.Errno) {
	msg.Iov = &v.iov[0]
	msg.SetIovlen(v.n)
	for {
		n, _, e := unix.RawSyscall(unix.SYS_SENDMSG, uintptr(fd), uintptr(unsafe.Pointer(msg)),
			unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		if e != unix.EINTR {
			return int(n), e
		}
	}
}

// recvVector is readv(2) on a non-blocking socket.
func recvVector(fd int, v *vector) (int, syscall.Errno) {
	for {
		n, _, e := unix.RawSyscall(unix.SYS_READV, uintptr(fd), uintptr(unsafe.Pointer(&v.iov[0])), uintptr(v.n))
		if e != unix.EINTR {
			return int(n), e
		}
	}
}

// pollReady is epoll_pwait(2) with no timeout. (arm64 has no epoll_wait.)
func pollReady(epfd int, events []unix.EpollEvent) (int, syscall.Errno) {
	n, _, e := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(epfd), uintptr(unsafe.Pointer(&events[0])),
		uintptr(len(events)), 0, 0, 0)
	if e == unix.EINTR {
		return 0, 0
	}
	return int(n), e
}

// addOne is eventfd_write(3). EAGAIN means that the counter is full, and so
// readable.
func addOne(evfd int) {
	one := uint64(1)
	unix.RawSyscall(unix.SYS_WRITE, uintptr(evfd), uintptr(unsafe.Pointer(&one)), 8)
}

// control sets what must be set before connect(2) or listen(2): the receive
// buffer fixes the window scale (tcp(7)).
func (d *device) control(_, _ string, c syscall.RawConn) error {
	var err error
	ctlErr := c.Control(func(fd uintptr) { err = d.setBuffers(int(fd)) })
	if ctlErr != nil {
		return ctlErr
	}
	return err
}

// setBuffers is for connections: datagram sockets have other defaults
// (bindDatagram).
func (d *device) setBuffers(fd int) error {
	send, recv := d.cfg.SendBuffer, d.cfg.RecvBuffer
	if d.addr.IsLoopback() {
		send, recv = cmp.Or(send, loopbackSendBuffer), cmp.Or(recv, loopbackRecvBuffer)
	}
	if recv > 0 {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, recv); err != nil {
			return fmt.Errorf("SO_RCVBUF: %w", err)
		}
	}
	if send > 0 {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, send); err != nil {
			return fmt.Errorf("SO_SNDBUF: %w", err)
		}
	}
	return nil
}

// takeDescriptor moves the connection out of Go's network poller: the poller
// thread watches it from now on. The connection is closed in any case. Keep
// alive, which Go set, stays: it tells a responder of a dead host.
func takeDescriptor(conn *net.TCPConn) (int, error) {
	defer conn.Close()
	raw, err := conn.SyscallConn()
	if err != nil {
		return -1, err
	}
	fd := -1
	ctlErr := raw.Control(func(s uintptr) {
		// A duplicate shares the file description, so it stays non-blocking.
		if fd, err = unix.FcntlInt(s, unix.F_DUPFD_CLOEXEC, 3); err != nil {
			fd = -1
			return
		}
		if err = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil {
			unix.Close(fd)
			fd = -1
		}
	})
	if ctlErr != nil {
		err = ctlErr
	}
	return fd, err
}
