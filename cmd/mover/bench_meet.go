package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"
)

// fabricPort is perftest's.
const fabricPort = 18515

// meet makes the connection of the two sides: it waits for one client, or
// dials a server that may be starting.
func meet(ctx context.Context, c *cli.Context, say io.Writer) (net.Conn, error) {
	if p := c.Int("port"); p < 1 || p > 65535 {
		return nil, usagef("--port: %d; allowed: 1 to 65535", p)
	}
	if c.NArg() == 1 {
		return dialServer(ctx, c)
	}
	address := net.JoinHostPort(strings.Trim(c.String("listen"), "[]"), strconv.Itoa(c.Int("port")))
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", address)
	if err != nil {
		if errors.Is(err, syscall.EADDRINUSE) {
			return nil, fmt.Errorf("--listen and --port: %w; choose another with -p, on both sides", err)
		}
		return nil, fmt.Errorf("--listen and --port: %w", err)
	}
	defer l.Close()
	defer context.AfterFunc(ctx, func() { l.Close() })()
	fmt.Fprintf(say, "waiting for a client on %s, for %v\n", l.Addr(), c.Duration("wait"))
	if err := l.(*net.TCPListener).SetDeadline(time.Now().Add(c.Duration("wait"))); err != nil {
		return nil, err
	}
	conn, err := l.Accept()
	var timeout net.Error
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case errors.As(err, &timeout) && timeout.Timeout():
		return nil, fmt.Errorf("no client came to %s within %v; start it with: %s%s HOST", l.Addr(), c.Duration("wait"), path(c), portOption(address))
	case err != nil:
		return nil, fmt.Errorf("waiting for a client: %w", err)
	}
	return conn, nil
}

// dialLimit is how long a client tries to reach a server that refuses.
const dialLimit = 10 * time.Second

func dialServer(ctx context.Context, c *cli.Context) (net.Conn, error) {
	address, err := serverAddress(c.Args().First(), c.Int("port"))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, dialLimit)
	defer cancel()
	var d net.Dialer
	for {
		conn, err := d.DialContext(ctx, "tcp", address)
		if err == nil {
			return conn, nil
		}
		// A server that was started with this client may not listen yet.
		wait := time.NewTimer(100 * time.Millisecond)
		select {
		case <-wait.C:
		case <-ctx.Done():
		}
		wait.Stop()
		if errors.Is(ctx.Err(), context.Canceled) {
			return nil, context.Canceled
		}
		if ctx.Err() != nil || !errors.Is(err, syscall.ECONNREFUSED) {
			return nil, &exitError{code: exitUnreachable, err: fmt.Errorf("%w; start the server there first: %s%s --listen ADDRESS, and the same options",
				err, path(c), portOption(address))}
		}
	}
}

// portOption is how to name the port of an address, "" where no one has to.
func portOption(address string) string {
	_, port, err := net.SplitHostPort(address)
	if err != nil || port == strconv.Itoa(fabricPort) {
		return ""
	}
	return " -p " + port
}

// serverAddress takes HOST or HOST:PORT; an IPv6 address needs no brackets
// unless a port follows.
func serverAddress(s string, port int) (string, error) {
	host, own, err := net.SplitHostPort(s)
	switch {
	case s == "" || s == "[]":
		return "", usagef("%q has no host", s)
	case err != nil && strings.Count(s, ":") != 1 && !strings.Contains(s, "]:"):
		return net.JoinHostPort(strings.Trim(s, "[]"), strconv.Itoa(port)), nil
	case err != nil:
		return "", usagef("%q is not HOST or HOST:PORT: %w", s, err)
	case host == "":
		return "", usagef("%q has no host", s)
	}
	if n, err := strconv.ParseUint(own, 10, 16); err != nil || n == 0 {
		return "", usagef("%q: the port is not a number from 1 to 65535", s)
	}
	return net.JoinHostPort(host, own), nil
}
