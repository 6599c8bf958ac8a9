package fabric

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"mover/verbs"
)

// TestMismatch: each side says what differs, and nothing is measured.
func TestMismatch(t *testing.T) {
	base := Config{Test: Bandwidth, Iterations: 100}
	for _, c := range []struct {
		option string
		server func(*Config)
		here   string // as the client says it
	}{
		{"the test", func(c *Config) { c.Test, c.Op = Latency, Send }, "bw here and lat there"},
		{"-c/--connection", func(c *Config) { c.Transport = verbs.UC }, "RC here and UC there"},
		{"--op", func(c *Config) { c.Op = Send }, "write here and send there"},
		{"-s/--size", func(c *Config) { c.SizeBytes = 64 }, "65536 here and 64 there"},
		{"-s/--size", func(c *Config) { c.All = true }, "65536 here and 2 to 8388608 there"},
		{"-q/--qp", func(c *Config) { c.QPs = 2 }, "1 here and 2 there"},
		{"-n/--iters or -D/--duration", func(c *Config) { c.Duration = time.Second }, "100 here and 1 s there"},
		{"-t/--tx-depth", func(c *Config) { c.Depth = 64 }, "128 here and 64 there"},
		{"--ring", func(c *Config) { c.RingBytes = 1 << 20 }, "4194304 here and 1048576 there"},
		{"checking (--no-verify)", func(c *Config) { c.Verify = true }, "false here and true there"},
	} {
		server := base
		c.server(&server)
		cl, sv := pairRun{client: base, server: server}.run(t)
		for _, e := range []pairEnd{cl, sv} {
			var m *MismatchError
			if !errors.As(e.err, &m) || !errors.Is(e.err, ErrMismatch) || len(e.report.Results) > 0 {
				t.Errorf("%s: %v", c.option, e.err)
			}
		}
		if want := c.option + " is " + c.here; cl.err == nil || !strings.Contains(cl.err.Error(), want) {
			t.Errorf("%v; want %q", cl.err, want)
		}
	}
}

// TestMTU: different MTUs are used at the lesser, with both shown.
func TestMTU(t *testing.T) {
	cl, sv := pairRun{client: Config{Test: Bandwidth, Iterations: 20, MTU: verbs.MTU1024}, server: Config{Test: Bandwidth, Iterations: 20}}.run(t)
	if cl.err != nil || sv.err != nil {
		t.Fatal(cl.err, sv.err)
	}
	if r := cl.report; r.MTU != verbs.MTU1024 || r.RemoteMTU != verbs.MTU4096 || sv.report.MTU != verbs.MTU1024 {
		t.Errorf("%v %v %v", r.MTU, r.RemoteMTU, sv.report.MTU)
	}
	var b bytes.Buffer
	Table{W: &b}.Begin(cl.report)
	if !strings.Contains(b.String(), "1024[B] (warning: here 1024, there 4096)") {
		t.Error(b.String())
	}
}

// alone runs one side against whatever other does with the connection.
func alone(t *testing.T, c Config, asClient bool, other func(net.Conn)) error {
	t.Helper()
	cc, sc := twoConns(t)
	mine, theirs := sc, cc
	if asClient {
		mine, theirs = cc, sc
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		other(theirs)
	}()
	f := Serve
	if asClient {
		f = Client
	}
	_, err := f(t.Context(), c, openPort(t, nil), mine, Show{})
	theirs.Close()
	<-ended
	return err
}

var brief = Config{Test: Bandwidth, Iterations: 100, Silence: 150 * time.Millisecond}

// TestSilence: a peer that says nothing, or stops saying anything, is left.
func TestSilence(t *testing.T) {
	for _, asClient := range []bool{false, true} {
		err := alone(t, brief, asClient, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
		if !errors.Is(err, ErrSilent) || !strings.Contains(err.Error(), "said nothing for 150ms") {
			t.Errorf("client %v: %v", asClient, err)
		}
		err = alone(t, brief, asClient, func(c net.Conn) { c.Close() })
		if !errors.Is(err, ErrSilent) {
			t.Errorf("client %v: %v", asClient, err)
		}
	}
}

// TestDeadDuringRun: the other process is gone in the middle of the run.
func TestDeadDuringRun(t *testing.T) {
	for _, test := range []Test{Bandwidth, Latency, Rate} {
		for _, clientDies := range []bool{false, true} {
			cc, sc := twoConns(t)
			cp, sp := openPort(t, nil), openPort(t, nil)
			c := Config{Test: test, Duration: time.Minute, SizeBytes: 64, Verify: true}
			dying, lives := context.WithCancel(t.Context())
			show := Show{Agreed: func(*Report) { time.AfterFunc(50*time.Millisecond, lives) }}
			ctxs := map[bool]context.Context{true: dying, false: t.Context()}
			served := make(chan error, 1)
			go func() {
				_, err := Serve(ctxs[!clientDies], c, sp, sc, show)
				served <- err
			}()
			_, err := Client(ctxs[clientDies], c, cp, cc, show)
			killed, left := <-served, err
			if clientDies {
				killed, left = left, killed
			}
			if !errors.Is(killed, context.Canceled) {
				t.Errorf("%s: the one that ended: %v", test, killed)
			}
			var remote *RemoteError
			if !errors.As(left, &remote) && !errors.Is(left, ErrSilent) {
				t.Errorf("%s: the one that was left: %v", test, left)
			}
		}
	}
}

// TestHostileFrames: what is no frame of this protocol ends the run with
// ErrProtocol, and with nothing allocated for what a length claims.
func TestHostileFrames(t *testing.T) {
	good := func(change func(*hello)) []byte {
		h := hello{Terms: mustComplete(brief).terms(), Port: portTerms{Provider: "soft", Device: "soft0", LinkLayer: 2,
			GIDType: uint8(verbs.GIDSoft), GID: gidHex(verbs.GID{10: 0xff, 11: 0xff, 12: 127, 15: 1}), MTU: 5}}
		if change != nil {
			change(&h)
		}
		b, err := appendFrame(nil, kindHello, &h)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	raw := func(kind frameKind, body string) []byte {
		b, _ := appendFrame(nil, kind, json.RawMessage(body))
		return b
	}
	badSetup := func(change func(*end)) []byte {
		e := end{QPN: 5, GID: gidHex(verbs.GID{10: 0xff, 11: 0xff, 12: 127, 15: 1})}
		change(&e)
		b, _ := appendFrame(good(nil), kindSetup, &setup{Ends: []end{e}})
		return b
	}
	patient := brief
	patient.Silence = 5 * time.Second
	for name, b := range map[string][]byte{
		"http":              []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
		"version":           append([]byte{'m', 'v', 'b', 9}, good(nil)[4:]...),
		"length":            {'m', 'v', 'b', 1, 1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff},
		"kind":              {'m', 'v', 'b', 1, 77, 0, 0, 0, 0, 0, 0, 0},
		"reserved":          {'m', 'v', 'b', 1, 1, 1, 0, 0, 0, 0, 0, 0},
		"no JSON":           raw(kindHello, `"`+"x"+`"`),
		"unknown field":     raw(kindHello, `{"terms":{},"extra":1}`),
		"two values":        {'m', 'v', 'b', 1, 1, 0, 0, 0, 0, 0, 0, 4, '{', '}', '{', '}'},
		"not the turn":      raw(kindDone, `{"run":0,"sent":[1]}`),
		"MTU":               good(func(h *hello) { h.Port.MTU = 9 }),
		"negative":          good(func(h *hello) { h.Terms.QPs = -1 }),
		"name":              good(func(h *hello) { h.Port.Device = "\x1b[2J" }),
		"QPN":               badSetup(func(e *end) { e.QPN = 1 << 24 }),
		"PSN":               badSetup(func(e *end) { e.PSN = 1 << 24 }),
		"connection data":   badSetup(func(e *end) { e.ConnData = make([]byte, 65) }),
		"ring wraps":        badSetup(func(e *end) { e.Addr, e.Bytes = ^uint64(0)-100, 101 }),
		"no GID":            badSetup(func(e *end) { e.GID = gidHex{} }),
		"more than one QP":  append(good(nil), raw(kindSetup, `{"run":0,"seed":1,"ends":[{},{}]}`)...),
		"another run":       append(good(nil), raw(kindSetup, `{"run":1,"seed":1,"ends":[{}]}`)...),
		"more than is due":  bytes.Repeat(good(nil), 9),
		"failed with bells": raw(kindFailed, `{"text":"\u0007"}`),
	} {
		err := alone(t, patient, false, func(c net.Conn) {
			_, _ = c.Write(b)
			_, _ = io.Copy(io.Discard, c)
			c.Close()
		})
		if !errors.Is(err, ErrProtocol) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func mustComplete(c Config) *Config {
	c, err := c.complete()
	if err != nil {
		panic(err)
	}
	return &c
}

// TestRingTooSmall: a sender writes only where the other side said it may.
func TestRingTooSmall(t *testing.T) {
	patient := brief
	patient.Silence = 5 * time.Second
	err := alone(t, patient, true, func(c net.Conn) {
		h := hello{Terms: mustComplete(brief).terms(), Port: portTerms{Provider: "soft", Device: "soft0", LinkLayer: 2,
			GIDType: uint8(verbs.GIDSoft), GID: gidHex(verbs.GID{10: 0xff, 11: 0xff, 12: 127, 15: 1}), MTU: 5}}
		b, _ := appendFrame(nil, kindHello, &h)
		b, _ = appendFrame(b, kindSetup, &setup{Ends: []end{{QPN: 5, GID: h.Port.GID, Addr: 4096, Bytes: 4096}}})
		_, _ = c.Write(b)
		_, _ = io.Copy(io.Discard, c)
		c.Close()
	})
	if !errors.Is(err, ErrProtocol) || !strings.Contains(err.Error(), "a ring of 4096 bytes") {
		t.Error(err)
	}
}

// TestCalls: a poller is called for a frame that waits and for the end, and for
// nothing that was already taken.
func TestCalls(t *testing.T) {
	cc, sc := twoConns(t)
	a, b := newTalk(t.Context(), cc, time.Minute), newTalk(t.Context(), sc, time.Minute)
	defer b.close()
	for range 200 { // b waits in receive when the frame comes
		sent := make(chan error, 1)
		go func() { sent <- a.send(kindReady, &ready{}) }()
		if err := errors.Join(b.receive(kindReady, &ready{}), <-sent); err != nil {
			t.Fatal(err)
		}
		if b.calls() {
			t.Fatal("called for a frame that was taken")
		}
	}
	if err := a.send(kindReady, &ready{}); err != nil {
		t.Fatal(err)
	}
	for !b.calls() { // until the reader has it
		time.Sleep(time.Millisecond)
	}
	if err := b.receive(kindReady, &ready{}); err != nil || b.calls() {
		t.Fatal(err)
	}
	a.close()
	for !b.calls() {
		time.Sleep(time.Millisecond)
	}
	if err := b.receive(kindReady, &ready{}); !errors.Is(err, ErrSilent) {
		t.Error(err)
	}
}

func FuzzFrame(f *testing.F) {
	add := func(kind frameKind, v any) {
		b, err := appendFrame(nil, kind, v)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	add(kindHello, &hello{Terms: mustComplete(brief).terms(), Port: portTerms{Provider: "soft", MTU: 5}})
	add(kindSetup, &setup{Seed: 1 << 63, Ends: []end{{QPN: 1, ConnData: []byte{1, 2}, Addr: 1 << 40, Bytes: 4096}}})
	add(kindReady, &ready{})
	add(kindDone, &done{Sent: []uint64{1, ^uint64(0)}})
	add(kindOutcome, &outcome{Known: true, Wrong: "x", CPU: 0.5})
	add(kindFailed, &failed{Text: "no"})
	add(kindAlive, nil)
	f.Fuzz(func(t *testing.T, b []byte) {
		fr, err := readFrame(bytes.NewReader(b))
		if err != nil {
			if !errors.Is(err, ErrProtocol) && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Fatal(err)
			}
			return
		}
		v := map[frameKind]checked{kindHello: &hello{}, kindSetup: &setup{}, kindReady: &ready{}, kindDone: &done{},
			kindOutcome: &outcome{}, kindFailed: &failed{}}[fr.kind]
		if v == nil || fr.decode(v) != nil {
			return
		}
		// What was let in can be said again, and is then the same.
		again, err := appendFrame(nil, fr.kind, v)
		if err != nil {
			t.Fatal(err)
		}
		first, _ := json.Marshal(v)
		fr2, err := readFrame(bytes.NewReader(again))
		if err == nil {
			err = fr2.decode(v)
		}
		if second, _ := json.Marshal(v); err != nil || !bytes.Equal(first, second) {
			t.Fatalf("%v: %s is read as %s", err, first, second)
		}
		if h, ok := v.(*hello); ok {
			_ = compare(h, &hello{}) // must not panic
		}
	})
}

// TestDatagramBeyondTheLesserMTU: a size that was asked for is not cut to what
// the other side's port takes.
func TestDatagramBeyondTheLesserMTU(t *testing.T) {
	cfg := Config{Test: Bandwidth, Transport: verbs.UD, Iterations: 10}
	asks, small := cfg, cfg
	asks.SizeBytes, small.MTU = 4096, verbs.MTU1024
	cl, sv := pairRun{client: asks, server: small}.run(t)
	var remote *RemoteError
	const want = "-s/--size: 4096; a UD message is one packet, and the lesser MTU of both sides is 1024"
	if !errors.Is(cl.err, ErrConfig) || !strings.Contains(cl.err.Error(), want) || !errors.As(sv.err, &remote) || !strings.Contains(remote.Text, want) {
		t.Errorf("client: %v\nserver: %v", cl.err, sv.err)
	}
}
