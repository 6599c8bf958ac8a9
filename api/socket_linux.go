package api

import (
	"context"
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// peerCredentials asks the kernel who connected (unix(7), SO_PEERCRED): the
// effective uid at the time of connect(2), which the process cannot choose. A
// uid of another user namespace comes out as the overflow uid.
func peerCredentials(conn *net.UnixConn) (uid uint32, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, fmt.Errorf("credentials of a Unix connection: %w", err)
	}
	var cred *unix.Ucred
	var asked error
	if err := raw.Control(func(fd uintptr) {
		cred, asked = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return 0, fmt.Errorf("credentials of a Unix connection: %w", err)
	}
	if asked != nil {
		return 0, fmt.Errorf("credentials of a Unix connection: %w", asked)
	}
	return cred.Uid, nil
}

// withCredentials is http.Server.ConnContext on a Unix socket: asked once a
// connection, as they do not change. Without them the connection has no user,
// which is not the same as a TCP connection.
func withCredentials(ctx context.Context, conn net.Conn) context.Context {
	c := &credentials{}
	if placed, ok := conn.(*placedConn); ok {
		conn = placed.Conn
	}
	if u, ok := conn.(*net.UnixConn); ok {
		c.uid, c.err = peerCredentials(u)
	} else {
		c.err = errors.New("not a Unix connection")
	}
	return context.WithValue(ctx, credentialsKey{}, c)
}

// maxSocketPath is what sun_path of struct sockaddr_un takes, the terminating
// NUL counted (unix(7)).
const maxSocketPath = len(unix.RawSockaddrUnix{}.Path)
