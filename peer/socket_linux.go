package peer

import (
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// keepalive is the plan for idle connections: the kernel probes after idle,
// and gives up on a peer that has not answered anything for idle + answer.
// gRPC pings as well, which finds a peer whose kernel lives and whose process
// does not, but lets a client do so only every 10 s.
type keepalive struct{ idle, answer time.Duration }

func (k keepalive) config() net.KeepAliveConfig {
	// tcp(7) counts in seconds; the number of probes does not matter once
	// TCP_USER_TIMEOUT is set.
	return net.KeepAliveConfig{Enable: true, Idle: max(k.idle, time.Second), Interval: max(k.answer/2, time.Second), Count: 8}
}

// apply sets TCP_USER_TIMEOUT (tcp(7)): without it data in flight to a dead
// host is retransmitted for 15 minutes, and no keepalive probe is sent
// meanwhile. A connection that is not TCP, as in tests, needs none.
func (k keepalive) apply(c net.Conn) error {
	t, ok := c.(*net.TCPConn)
	if !ok {
		return nil
	}
	raw, err := t.SyscallConn()
	if err != nil {
		return err
	}
	var serr error
	if err := raw.Control(func(fd uintptr) {
		serr = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int((k.idle + k.answer).Milliseconds()))
	}); err != nil {
		return err
	}
	return serr
}
