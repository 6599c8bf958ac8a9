package engine

import (
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"mover/reason"
)

// liar is a peer that breaks the protocol: it changes, repeats, drops, holds
// back and invents messages, as its script says. What it says over the control
// connection is anything at all; the fabric keeps what a QP can do in bounds.
type liar struct {
	w      *world
	script []byte
	at     int
	heard  []Message // to be repeated
}

func (l *liar) byte() byte {
	if l.at >= len(l.script) {
		return 0
	}
	l.at++
	return l.script[l.at-1]
}

func (l *liar) n(most int) int { return int(l.byte()) % most }

// number prefers what is nearly right.
func (l *liar) number() uint64 {
	switch b := l.byte(); b % 8 {
	case 0:
		return ^uint64(0) - uint64(l.byte())
	case 1:
		return 1<<63 - uint64(l.byte()%3)
	case 2:
		return 1 << (l.byte() % 64)
	case 3:
		return uint64(l.byte())<<8 | uint64(l.byte())
	case 4:
		return 4096 * uint64(l.byte())
	default:
		return uint64(b / 8 % 8)
	}
}

// tell carries a message of the honest peer, or what the liar makes of it.
func (l *liar) tell(link *simLink, m Message) {
	l.heard = append(l.heard, m)
	send := func(m Message) { _ = link.carry(m) }
	switch l.n(16) {
	case 1:
		return // dropped
	case 2:
		send(m)
		send(m)
		return
	case 3:
		send(l.change(m))
		return
	case 4:
		send(m)
		send(l.change(m))
		return
	case 5:
		send(l.change(l.heard[l.n(len(l.heard))]))
	case 6:
		send(l.heard[l.n(len(l.heard))])
	case 7:
		send(l.invent())
	case 8:
		l.w.after(int64(l.n(256))*100*us, "late lie", func() { send(m) })
		return
	}
	send(m)
}

// invent makes a message of any kind, of numbers that are nearly right.
func (l *liar) invent() Message {
	kinds := []Message{&Open{}, &GroupOpen{}, &LaneOpen{}, &LaneOpened{}, &LaneReady{}, &LaneDown{}, &LaneDownAnswer{}, &Ping{},
		&Pong{}, &Bye{}, &ItemOffer{}, &ItemAnswer{}, &SegmentGrants{}, &SegmentAcks{}, &RecordAcks{}, &ItemCommit{}, &ItemDone{}, &ItemAbort{}}
	m := kinds[l.n(len(kinds))]
	l.fillIn(reflect.ValueOf(m).Elem(), 255)
	return m
}

// change copies a message and changes some of it.
func (l *liar) change(m Message) Message {
	v := reflect.ValueOf(m).Elem()
	c := reflect.New(v.Type())
	copyValue(c.Elem(), v)
	l.fillIn(c.Elem(), 48)
	return c.Interface().(Message)
}

func copyValue(to, from reflect.Value) {
	switch from.Kind() {
	case reflect.Slice:
		if from.IsNil() {
			return
		}
		to.Set(reflect.MakeSlice(from.Type(), from.Len(), from.Len()))
		for i := range from.Len() {
			copyValue(to.Index(i), from.Index(i))
		}
	case reflect.Struct:
		for i := range from.NumField() {
			copyValue(to.Field(i), from.Field(i))
		}
	default:
		to.Set(from)
	}
}

// fillIn changes leaves, each with a probability of often in 256.
func (l *liar) fillIn(v reflect.Value, often int) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			l.fillIn(v.Field(i), often)
		}
	case reflect.Slice:
		if int(l.byte()) < often {
			n := l.n(6)
			grown := reflect.MakeSlice(v.Type(), n, n)
			reflect.Copy(grown, v)
			v.Set(grown)
		}
		for i := range min(v.Len(), 64) {
			l.fillIn(v.Index(i), often)
		}
	case reflect.Array:
		if v.Len() > 0 && int(l.byte()) < often {
			l.fillIn(v.Index(l.n(v.Len())), 255)
		}
	default:
		if int(l.byte()) >= often {
			return
		}
		switch {
		case v.CanUint():
			v.SetUint(l.number() & (1<<(v.Type().Bits()-1)<<1 - 1))
		case v.CanInt():
			v.SetInt(int64(l.number()))
		case v.Kind() == reflect.Bool:
			v.SetBool(l.byte()%2 == 0)
		case v.Kind() == reflect.String:
			v.SetString(strings.Repeat("x", l.n(256)*4))
		}
	}
}

// openLie answers offers that no item of the world is behind.
func (s *simSide) openLie(session *Session, ref ItemRef, offer *ItemOffer) bool {
	if len(offer.Meta) == 4 {
		if i := int(offer.Meta[0]); offer.Meta[1]|offer.Meta[2]|offer.Meta[3] == 0 && i < len(s.w.items) {
			known := s.w.items[i]
			if known.from != s && !known.opened && known.item.Bytes == offer.Bytes && known.item.Attempt == ref.Attempt &&
				known.item.Kind == offer.Kind && known.item.Verify == offer.Verify {
				return false
			}
		}
	}
	t := &Target{}
	switch {
	case offer.Bytes > 1<<20:
		session.Opened(ref, nil, false, nil, reason.New(reason.NoSpace, "too much"))
		return true
	case offer.Kind == Direct:
		t.Memory = alignedMemory(roundPage(offer.Bytes))
	default:
		t.Sink = nullSink{}
	}
	s.w.after(s.w.rng.Int64N(300*us), "opened a lie", func() { session.Opened(ref, t, false, nil, nil) })
	return true
}

type nullSink struct{}

func (nullSink) WriteAt(p []byte, _ int64) (int, error) { return len(p), nil }

// testHostile runs a session against a liar. The honest side (a) never panics,
// gives every item back once, touches no source after that, and in the end
// holds nothing.
func testHostile(t *testing.T, seed uint64, script []byte, replay string) {
	w := newWorld(t, seed, nil)
	w.hostile = true
	w.liar = &liar{w: w, script: script}
	w.drawItems(4, 64<<10, nil)
	// The rest of the script is told while items are on their way.
	for range 8 {
		w.after(w.rng.Int64N(10*ms), "lie", func() {
			if !w.sides[1].ended {
				_ = w.sides[1].links[w.liar.n(2)].carry(w.liar.invent())
			}
		})
	}
	fine := func() {
		kept := w.problems[:0]
		for _, p := range w.problems {
			for _, own := range []string{"a: ", "Done a second time", "after Done", "source memory was written", "Done called", "not within", "nobody acts", "group ", "released twice"} {
				if strings.Contains(p, own) && !strings.Contains(p, "a logged") {
					kept = append(kept, p)
					break
				}
			}
		}
		w.problems = kept
	}
	end := w.now() + 40*s1
	for w.now() < end && !w.bothEnded() && !w.allDone() && w.step() {
		fine()
		if len(w.problems) > 0 {
			break
		}
	}
	for _, s := range w.sides {
		s.session.Close(nil)
	}
	for end := w.now() + 100*s1; w.now() < end && !w.bothEnded() && w.step(); {
		fine()
	}
	w.finish()
	fine()
	for _, v := range w.f.Violations() {
		if v.Host == "a" && !strings.Contains(v.Detail, "of the peer") {
			w.problem("verbs: %v", v)
		}
	}
	if len(w.problems) > 0 {
		t.Errorf("seed %d, %s:\n%s\nlog:\n%s\nreplay: %s", seed, w.cfgText(), strings.Join(w.problems, "\n"), strings.Join(w.log, "\n"), replay)
	}
}

// TestSimHostile tells random lies.
func TestSimHostile(t *testing.T) {
	seeds(t, 150, func(t *testing.T, seed uint64, replay string) {
		rng := rand.New(rand.NewPCG(seed, 13))
		script := make([]byte, rng.IntN(60)) // so many messages are the truth
		for range 2000 {
			script = append(script, byte(rng.Uint32()))
		}
		testHostile(t, seed, script, replay)
	})
}

// FuzzSessionHandle lets the fuzzer write the script.
func FuzzSessionHandle(f *testing.F) {
	f.Add(uint64(1), []byte{3, 1, 2, 3, 4, 5, 6, 7, 8, 9})
	f.Add(uint64(2), []byte(strings.Repeat("\x00", 12)+"\x07\x0c\x01\x02\x03\x04\x05"))
	f.Add(uint64(3), []byte(strings.Repeat("\x04\xff", 200)))
	f.Fuzz(func(t *testing.T, seed uint64, script []byte) {
		if len(script) > 4096 {
			return
		}
		testHostile(t, seed%64, script, "the fuzzer's corpus")
	})
}
