package peer

import (
	"bytes"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"

	"mover/engine"
	"mover/peer/peerpb"
	"mover/reason"
)

// connect dials b from a and returns both ends.
func connect(t *testing.T, a, b *node) (ours, theirs *Conn) {
	t.Helper()
	ours = dial(t, a, b.cfg.Identity.Name)
	return ours, receive(t, b.accepted, "session accepted")
}

func TestSession(t *testing.T) {
	a, b := twoNodes(t)
	ca, cb := connect(t, a, b)
	ida, idb := a.cfg.Identity, b.cfg.Identity
	if got, want := ca.Peer(), (PeerInfo{idb.Name, idb.Fingerprint, b.Instance(), Version, b.addr()}); got != want {
		t.Errorf("dialler sees %+v, want %+v", got, want)
	}
	got := cb.Peer()
	if want := (PeerInfo{ida.Name, ida.Fingerprint, a.Instance(), Version, got.Addr}); got != want || !strings.HasPrefix(got.Addr, "127.0.0.1:") {
		t.Errorf("acceptor sees %+v, want %+v", got, want)
	}
	if !ca.Dialler() || cb.Dialler() || ca.Session() != cb.Session() || ca.Err() != nil {
		t.Errorf("Dialler %v %v, Session %q %q, Err %v", ca.Dialler(), cb.Dialler(), ca.Session(), cb.Session(), ca.Err())
	}
	if again := dial(t, a, idb.Name); again != ca {
		t.Error("a second Dial made another session")
	}
	if back := dial(t, b, ida.Name); back != cb {
		t.Error("a Dial of the acceptor made another session")
	}
	for _, c := range []struct{ from, to *Conn }{{ca, cb}, {cb, ca}} {
		for _, m := range []engine.Message{ping(7), &engine.ItemOffer{Ref: engine.ItemRef{Item: 1}, Kind: engine.Direct, Bytes: 5, Meta: []byte("m")}} {
			if err := c.from.Send(m); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(m, receive(t, c.to.Messages(), "message")); diff != "" {
				t.Error(diff)
			}
		}
	}
}

// Both streams keep their order under load, in both directions at once.
func TestOrderPerStream(t *testing.T) {
	const n = 1000
	a, b := twoNodes(t)
	ca, cb := connect(t, a, b)
	for _, c := range []*Conn{ca, cb} {
		go func() {
			for i := range uint64(n) {
				// 2n small frames are fewer than the queue's 2 x 4096.
				if err := c.Send(ping(i)); err != nil {
					t.Error(err)
					return
				}
				if err := c.Send(&engine.RecordAcks{Acks: []engine.RecordAck{{Offset: int64(i)}}}); err != nil {
					t.Error(err)
					return
				}
			}
		}()
	}
	for _, c := range []*Conn{ca, cb} {
		var pings uint64
		var acks int64
		for pings < n || acks < n {
			switch m := receive(t, c.Messages(), "message").(type) {
			case *engine.Ping:
				if m.Seq != pings {
					t.Fatalf("ping %d after %d", m.Seq, pings)
				}
				pings++
			case *engine.RecordAcks:
				for _, ack := range m.Acks {
					if ack.Offset != acks {
						t.Fatalf("ack %d after %d", ack.Offset, acks)
					}
					acks++
				}
			}
		}
	}
}

// The largest message passes, also several times the flow-control window.
func TestLargeMessages(t *testing.T) {
	a, b := twoNodes(t)
	ca, cb := connect(t, a, b)
	acks := make([]engine.RecordAck, engine.MaxBatch)
	for i := range acks {
		acks[i].Detail = strings.Repeat("x", maxDetailBytes)
	}
	for range 2 {
		if err := ca.Send(&engine.RecordAcks{Acks: acks}); err != nil {
			t.Fatal(err)
		}
		m := receive(t, cb.Messages(), "large message").(*engine.RecordAcks)
		if diff := cmp.Diff(acks, m.Acks); diff != "" {
			t.Fatal("changed on the way")
		}
	}
}

func TestSendRefusesWhatHasNoForm(t *testing.T) {
	a, b := twoNodes(t)
	ca, cb := connect(t, a, b)
	if err := ca.Send(&engine.RecordAcks{Acks: make([]engine.RecordAck, engine.MaxBatch+1)}); !errors.Is(err, ErrMessage) {
		t.Errorf("Send = %v", err)
	}
	if err := ca.Send(ping(1)); err != nil {
		t.Fatal(err)
	}
	receive(t, cb.Messages(), "message after the refused one")
}

func TestCloseDeliversWhatWasQueued(t *testing.T) {
	a, b := twoNodes(t)
	for _, fromDialler := range []bool{true, false} {
		from, to := connect(t, a, b)
		if !fromDialler {
			from, to = to, from
		}
		const n = 500
		for i := range uint64(n) {
			if err := from.Send(ping(i)); err != nil {
				t.Fatal(err)
			}
			if err := from.Send(&engine.ItemAbort{Ref: engine.ItemRef{Item: i}}); err != nil {
				t.Fatal(err)
			}
		}
		from.Close("maintenance")
		from.Close("twice")
		if err := from.Send(ping(0)); !errors.Is(err, ErrClosed) {
			t.Errorf("Send after Close: %v", err)
		}
		got := 0
		for range to.Messages() {
			got++
		}
		if got != 2*n {
			t.Errorf("from dialler %v: %d of %d messages arrived", fromDialler, got, 2*n)
		}
		if err := ended(t, from); !errors.Is(err, ErrClosed) {
			t.Errorf("closer: %v", err)
		} else {
			mentionErr(t, err, "maintenance", "here")
		}
		err := ended(t, to)
		if !errors.Is(err, ErrClosed) {
			t.Errorf("closed: %v", err)
		}
		mentionErr(t, err, "by the peer", "maintenance")
		// Both ends are gone from the books before the next round dials.
		waitFor(t, "sessions to be forgotten", func() bool { return len(a.Sessions())+len(b.Sessions()) == 0 })
	}
}

// waitFor polls for something that has no event of its own.
func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
		runtime.Gosched()
		time.Sleep(time.Millisecond)
	}
}

func TestBothClose(t *testing.T) {
	a, b := twoNodes(t)
	ca, cb := connect(t, a, b)
	ca.Close("a")
	cb.Close("b")
	ended(t, ca) // and not only after DrainTimeout, which is as long as ended waits
	ended(t, cb)
}

// A consumer that does not read stops the sender, whose queue overflows; the
// session ends on both sides, though one of them is not reading.
func TestQueueOverflow(t *testing.T) {
	a, b := twoNodes(t, func(c *Config) { c.QueueFrames = 8 })
	ca, cb := connect(t, a, b)
	offer := &engine.ItemOffer{Kind: engine.Staged, Meta: make([]byte, engine.MaxMetaBytes)}
	var err error
	for i := range messageBacklog {
		if err := ca.Send(offer); err != nil {
			t.Fatal(err)
		}
		waitFor(t, "the message to arrive", func() bool { return len(cb.Messages()) == i+1 })
	}
	// Queue, windows and socket buffers are all bounded, and together far below
	// this.
	for i := 0; err == nil && i < 10000; i++ {
		err = ca.Send(offer)
	}
	if !errors.Is(err, ErrOverflow) || reason.Of(err) != reason.TransportError {
		t.Fatalf("Send = %v", err)
	}
	mentionErr(t, err, "does not read", `"node-`, "check")
	if err := ended(t, ca); !errors.Is(err, ErrOverflow) {
		t.Errorf("sender: %v", err)
	}
	if err := ended(t, cb); reason.Of(err) != reason.TransportError {
		t.Errorf("receiver: %v", err)
	}
	// What it had received is still there, and then the channel is closed.
	n := 0
	for range cb.Messages() {
		n++
	}
	if n != messageBacklog {
		t.Errorf("%d messages were waiting, want %d", n, messageBacklog)
	}
}

func TestBytesOverflow(t *testing.T) {
	a, b := twoNodes(t, func(c *Config) { c.QueueBytes = 100 << 10 })
	ca, _ := connect(t, a, b)
	var err error
	for i := 0; err == nil && i < 10000; i++ {
		err = ca.Send(&engine.ItemOffer{Kind: engine.Staged, Meta: make([]byte, engine.MaxMetaBytes)})
	}
	if !errors.Is(err, ErrOverflow) {
		t.Fatalf("Send = %v", err)
	}
	ended(t, ca)
}

func TestKilledConnection(t *testing.T) {
	a, b := twoNodes(t)
	for _, killDialler := range []bool{true, false} {
		ca, cb := connect(t, a, b)
		victim := ca
		if !killDialler {
			victim = cb
		}
		victim.link.tcp.Close()
		for _, c := range []*Conn{ca, cb} {
			err := ended(t, c)
			if reason.Of(err) != reason.TransportError || errors.Is(err, ErrClosed) {
				t.Errorf("Err = %v", err)
			}
			mentionErr(t, err, "lost", c.Peer().Name, c.Peer().Addr, "check that mover still runs there")
			if _, ok := <-c.Messages(); ok {
				t.Error("a message out of nowhere")
			}
			if err := c.Send(ping(1)); !errors.Is(err, ErrClosed) {
				t.Errorf("Send = %v", err)
			}
		}
	}
}

// A peer that breaks the protocol is told so, and its session ends.
func TestViolationsEndTheSession(t *testing.T) {
	for name, tt := range map[string]struct {
		item  bool
		frame *peerpb.Frame
		says  []string
	}{
		"garbage":        {false, garbage(), []string{"not decodable"}},
		"empty":          {false, &peerpb.Frame{}, []string{"empty"}},
		"second hello":   {false, &peerpb.Frame{Body: &peerpb.Frame_Hello{Hello: &peerpb.Hello{}}}, []string{"no place"}},
		"wrong stream":   {true, frameOf(t, ping(1)), []string{"wrong stream"}},
		"wrong stream 2": {false, frameOf(t, &engine.ItemAbort{}), []string{"wrong stream"}},
		"bad field":      {true, offerFrame(func(o *peerpb.ItemOffer) { o.Kind = 9 }), []string{"item_offer.kind", "9"}},
		"too large":      {true, offerFrame(func(o *peerpb.ItemOffer) { o.Meta = make([]byte, maxFrameBytes) }), []string{"larger than"}},
	} {
		t.Run(name, func(t *testing.T) {
			n, s := strangerNode(t)
			control, items := s.session()
			conn := receive(t, n.accepted, "session")
			st := control
			if tt.item {
				st = items
			}
			if err := st.Send(tt.frame); err != nil {
				t.Fatal(err)
			}
			f, err := control.Recv()
			if err != nil || f.GetClosing().GetCode() != peerpb.ClosingCode_CLOSING_VIOLATION {
				t.Fatalf("the violator hears %v, %v", f, err)
			}
			mention(t, f.GetClosing().GetDetail(), tt.says...)
			s.link.shut()
			err = ended(t, conn)
			var v *ViolationError
			if !errors.As(err, &v) || reason.Of(err) != reason.TransportError {
				t.Fatalf("Err = %v", err)
			}
			mentionErr(t, err, append(tt.says, `"stranger"`, "protocol violation")...)
		})
	}
}

// garbage is a frame whose bytes are no protobuf: a field that claims more
// bytes than there are.
func garbage() *peerpb.Frame {
	f := &peerpb.Frame{}
	raw := protowire.AppendTag(nil, 16, protowire.BytesType)
	raw = protowire.AppendVarint(raw, 1000)
	f.ProtoReflect().SetUnknown(raw)
	return f
}

// A violator that does not hang up is cut off.
func TestViolatorThatStays(t *testing.T) {
	n, s := strangerNode(t, shortDrain)
	control, _ := s.session()
	conn := receive(t, n.accepted, "session")
	if err := control.Send(&peerpb.Frame{}); err != nil {
		t.Fatal(err)
	}
	ended(t, conn)
	for {
		if _, err := control.Recv(); err != nil {
			break
		}
	}
}

// The text of a peer's Closing cannot forge log lines.
func TestClosingTextIsCleaned(t *testing.T) {
	n, s := strangerNode(t)
	control, items := s.session()
	conn := receive(t, n.accepted, "session")
	bye := &peerpb.Frame{Body: &peerpb.Frame_Closing{Closing: &peerpb.Closing{Code: peerpb.ClosingCode_CLOSING_ORDERLY, Detail: "a\nb\x1b[31m" + strings.Repeat("x", 5000)}}}
	for _, st := range []stream{control, items} {
		if err := st.Send(bye); err != nil {
			t.Fatal(err)
		}
	}
	err := ended(t, conn)
	if text := err.Error(); strings.ContainsAny(text, "\n\x1b") || len(text) > 2*maxDetailBytes {
		t.Errorf("text of %d bytes: %q", len(text), text)
	}
}

func TestTimeoutsOfTheSocket(t *testing.T) {
	a, b := twoNodes(t, func(c *Config) { c.Keepalive, c.KeepaliveTimeout = 3*time.Second, 4*time.Second })
	ca, cb := connect(t, a, b)
	for _, c := range []*Conn{ca, cb} {
		if got := userTimeout(t, c.link.tcp); got != 7000 {
			t.Errorf("TCP_USER_TIMEOUT is %d ms, want 7000", got)
		}
	}
}

func TestPrintable(t *testing.T) {
	if got := printable("ok é\t\n\x00\xff"); got != "ok é\uFFFD\uFFFD\uFFFD\uFFFD" {
		t.Errorf("printable = %q", got)
	}
	if !bytes.Equal([]byte(printable("plain")), []byte("plain")) {
		t.Error("plain text changed")
	}
}
