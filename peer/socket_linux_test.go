package peer

import (
	"net"
	"testing"

	"golang.org/x/sys/unix"
)

// userTimeout is the TCP_USER_TIMEOUT of a connection, in ms.
func userTimeout(t *testing.T, c net.Conn) int {
	t.Helper()
	if a, ok := c.(*arrival); ok {
		c = a.Conn
	}
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var n int
	var serr error
	if err := raw.Control(func(fd uintptr) { n, serr = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT) }); err != nil || serr != nil {
		t.Fatal(err, serr)
	}
	return n
}
