package fabric

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"go.uber.org/goleak"

	"mover/verbs"
	"mover/verbs/soft"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// twoConns is a connection over loopback, as the command has.
func twoConns(t testing.TB) (client, server net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if client, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if server, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close(); server.Close() })
	return client, server
}

// openPort opens soft0, and fails the test when a run leaves something open.
func openPort(t testing.TB, wrap func(verbs.Provider) verbs.Provider) *Port {
	t.Helper()
	var p verbs.Provider
	p, err := soft.New(soft.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if wrap != nil {
		p = wrap(p)
	}
	port, err := OpenPort(p, "", 0, BestGID)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := port.Close(); err != nil {
			t.Errorf("a run left something open: %v", err)
		}
	})
	return port
}

// pairRun is a client and a server in one process.
type pairRun struct {
	client, server Config
	wrapClient     func(verbs.Provider) verbs.Provider
	wrapServer     func(verbs.Provider) verbs.Provider
}

type pairEnd struct {
	report *Report
	err    error
}

func (p pairRun) run(t testing.TB) (client, server pairEnd) {
	t.Helper()
	cc, sc := twoConns(t)
	cp, sp := openPort(t, p.wrapClient), openPort(t, p.wrapServer)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	served := make(chan pairEnd, 1)
	go func() {
		r, err := Serve(ctx, p.server, sp, sc, Show{})
		served <- pairEnd{r, err}
	}()
	client.report, client.err = Client(ctx, p.client, cp, cc, Show{})
	return client, <-served
}

// same runs both sides with one Config.
func same(t testing.TB, c Config) (client, server pairEnd) {
	t.Helper()
	return pairRun{client: c, server: c}.run(t)
}

// measured runs and wants success.
func measured(t testing.TB, c Config) (client, server *Report) {
	t.Helper()
	cl, sv := same(t, c)
	if errors.Is(cl.err, verbs.ErrUnsupported) || errors.Is(sv.err, verbs.ErrUnsupported) {
		t.Skipf("the provider lacks it: %v", errors.Join(cl.err, sv.err))
	}
	if cl.err != nil || sv.err != nil {
		t.Fatalf("client: %v\nserver: %v", cl.err, sv.err)
	}
	return cl.report, sv.report
}
