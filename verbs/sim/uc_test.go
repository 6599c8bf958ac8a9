package sim_test

import (
	"bytes"
	"errors"
	"slices"
	"syscall"
	"testing"

	"mover/verbs"
	"mover/verbs/sim"
)

const packet = 4096 // the rig's path MTU, in bytes

func ucRig(t *testing.T, seed uint64, opt sim.Options, qps int) *rig {
	t.Helper()
	r := newRigOf(t, verbs.UC, seed, opt, qps)
	fillRandomly(r.a.mem, byte(seed))
	return r
}

// same reports whether n bytes at off are at both ends.
func (r *rig) same(off, n int) bool { return bytes.Equal(r.a.mem[off:off+n], r.b.mem[off:off+n]) }

func isZero(b []byte) bool { return bytes.Count(b, []byte{0}) == len(b) }

// TestUCLoss: a lost packet takes the rest of its message with it. What came
// before stays, there is no immediate, and the sender sees a success. The next
// message arrives.
func TestUCLoss(t *testing.T) {
	const packets = 6
	for _, calm := range []bool{true, false} {
		for lost := range packets {
			r := ucRig(t, uint64(lost), sim.Options{Calm: calm}, 1)
			r.recv(r.b.qps[0])
			r.f.LosePackets(r.a.ctx, func(i int) bool { return i == lost })
			r.post(r.a.qps[0], r.writeImm(r.a, r.b, 0, packets*packet-10))
			r.until(func() bool { return len(r.a.wcs) == 1 })
			r.settle()
			r.wantAll(r.a.wcs, 1, verbs.WCSuccess)
			r.wantAll(r.b.wcs, 0, verbs.WCSuccess)
			if !r.same(0, lost*packet) || !isZero(r.b.mem[lost*packet:]) {
				t.Errorf("packet %d lost: want the %d before it, and no more", lost, lost)
			}
			st := r.f.Stats()
			if st.LostPackets != 1 || st.LostMessages != 1 || st.Messages != 0 || (st.PartialWrites == 1) != (lost > 0) {
				t.Errorf("packet %d lost: %+v", lost, st)
			}

			const next = 200_000
			r.post(r.a.qps[0], r.writeImm(r.a, r.b, next, 3*packet))
			r.until(func() bool { return len(r.b.wcs) == 1 })
			if wc := r.b.wcs[0]; wc.Opcode != verbs.WCRecvRDMAWithIm || wc.ByteLen != 3*packet || !r.same(next, 3*packet) {
				t.Errorf("the message after: %+v", wc)
			}
			r.wantNoViolation()
		}
	}
}

// TestUCSurprises: over many seeds with random loss, everything happens that
// the specification allows, and an immediate never comes without all bytes of
// its own message and of the whole ones before it.
func TestUCSurprises(t *testing.T) {
	s := seen{}
	for seed := range uint64(60) {
		r := ucRig(t, seed, sim.Options{Faults: sim.Faults{LosePacket: .04}}, 2)
		const n = 5 * packet
		for i, qp := range r.b.qps {
			for range 3 * (i + 1) {
				r.recv(qp)
			}
		}
		var imms [4]int // by message, how often it was announced
		post := func(qp, i int) {
			wr := r.writeImm(r.a, r.b, i*n, n)
			wr.Imm = uint32(i)
			r.post(r.a.qps[qp], wr)
		}
		post(0, 0)
		post(0, 1)
		post(0, 2)
		post(1, 3)
		checked := 0
		for range 3000 {
			r.f.Step()
			r.poll()
			for ; checked < len(r.b.wcs); checked++ {
				wc := r.b.wcs[checked]
				if !r.same(int(wc.Imm)*n, n) {
					t.Fatalf("seed %d: message %d was announced before its bytes were there", seed, wc.Imm)
				}
				imms[wc.Imm]++
				if wc.Imm == 3 && imms[0] == 0 {
					s["the later QP first"]++
				}
				if wc.Imm > 0 && wc.Imm < 3 && imms[wc.Imm-1] == 0 {
					s["a message without the one before it"]++
				}
			}
			if len(r.a.wcs) == 4 && len(r.b.wcs) == 0 {
				s["the sender done, nothing announced yet"]++
			}
			if len(r.a.wcs) > 0 && isZero(r.b.mem[:n]) && imms[0] == 0 {
				s["the sender's completion before the bytes"]++
			}
			if part := r.b.mem[:n]; part[0] == 0 && part[n-1] != 0 {
				s["the end of a message before its start"]++
			}
		}
		r.settle()
		r.wantAll(r.a.wcs, 4, verbs.WCSuccess)
		for i, k := range imms {
			switch part := r.b.mem[i*n : (i+1)*n]; {
			case k > 1:
				t.Errorf("seed %d: message %d came %d times", seed, i, k)
			case k == 1:
				s["arrived"]++
			case isZero(part):
				s["nothing of it"]++
			case !r.same(i*n, n):
				s["a part of it"]++
			}
		}
		if st := r.f.Stats(); st.Messages+st.LostMessages != 4 {
			t.Errorf("seed %d: 4 messages were sent: %+v", seed, st)
		}
		r.wantNoViolation()
	}
	s.want(t, "the later QP first", "a message without the one before it", "the sender done, nothing announced yet",
		"the sender's completion before the bytes", "the end of a message before its start", "arrived", "nothing of it",
		"a part of it")
}

// TestUCOrder: messages of one QP are announced in order.
func TestUCOrder(t *testing.T) {
	forSeeds(t, 10, func(t *testing.T, seed uint64) {
		r := ucRig(t, seed, sim.Options{Faults: sim.Faults{LosePacket: .02}}, 1)
		for i := range 40 {
			r.recv(r.b.qps[0])
			wr := r.writeImm(r.a, r.b, 0, 100*i)
			wr.Imm, wr.RemoteAddr = uint32(i), r.b.mr.Addr()+uint64(i)*5000
			r.post(r.a.qps[0], wr)
		}
		r.settle()
		r.wantAll(r.a.wcs, 40, verbs.WCSuccess)
		imms := func(yield func(uint32) bool) {
			for _, wc := range r.b.wcs {
				yield(wc.Imm)
			}
		}
		if len(r.b.wcs) < 10 || !slices.IsSorted(slices.Collect(imms)) {
			t.Errorf("announced: %v", slices.Collect(imms))
		}
	})
}

// TestUCSendKeepsReceive: a SEND cut short does not use up its receive; the
// next one takes it, over what the first has left there.
func TestUCSendKeepsReceive(t *testing.T) {
	forSeeds(t, 20, func(t *testing.T, seed uint64) {
		r := ucRig(t, seed, sim.Options{Calm: seed == 0}, 1)
		r.recvInto(r.b, r.b.qps[0], 0, 4*packet)
		r.f.LosePackets(r.a.ctx, func(i int) bool { return i == 3 })
		r.post(r.a.qps[0], r.send(r.a, 0, 4*packet), r.send(r.a, 100_000, packet+1))
		r.until(func() bool { return len(r.b.wcs) == 1 && len(r.a.wcs) == 2 })
		r.wantAll(r.a.wcs, 2, verbs.WCSuccess)
		if wc := r.b.wcs[0]; wc.Status != verbs.WCSuccess || wc.ByteLen != packet+1 {
			t.Fatalf("receive %+v", wc)
		}
		r.settle()
		if !bytes.Equal(r.b.mem[:packet+1], r.a.mem[100_000:100_000+packet+1]) {
			t.Error("the second message is not what is there")
		}
		if !r.same(2*packet, packet) || !isZero(r.b.mem[3*packet:]) {
			t.Error("of the first message, what was not overwritten should be there, and nothing after the gap")
		}
		r.wantNoViolation()
	})
}

// TestUCNoReceive: the last packet of a write with immediate finds no receive
// and is dropped; a SEND is dropped as a whole. Neither side hears of it.
func TestUCNoReceive(t *testing.T) {
	r := ucRig(t, 1, sim.Options{}, 1)
	r.post(r.a.qps[0], r.writeImm(r.a, r.b, 0, 3*packet), r.send(r.a, 0, 3*packet), r.writeImm(r.a, r.b, 100_000, 10))
	r.settle()
	r.wantAll(r.a.wcs, 3, verbs.WCSuccess)
	if !r.same(0, 2*packet) || !isZero(r.b.mem[2*packet:]) {
		t.Error("want the first two packets of the write, and nothing else")
	}
	if st := r.f.Stats(); st.RNR != 3 || st.LostMessages != 3 || st.LostPackets != 0 {
		t.Errorf("%+v", st)
	}
	r.recv(r.b.qps[0])
	r.post(r.a.qps[0], r.writeImm(r.a, r.b, 0, 3*packet))
	r.until(func() bool { return len(r.b.wcs) == 1 })
	if !r.same(0, 3*packet) {
		t.Error("bytes are wrong")
	}
	r.wantNoViolation()
}

// TestUCRefused: what may not be written is dropped in silence, and both QPs
// go on.
func TestUCRefused(t *testing.T) {
	for name, change := range map[string]func(r *rig, wr *verbs.SendWR){
		"wrong rkey":   func(_ *rig, wr *verbs.SendWR) { wr.RKey ^= 0x5a00 },
		"wraps around": func(_ *rig, wr *verbs.SendWR) { wr.RemoteAddr = ^uint64(0) - 31 },
		"behind":       func(_ *rig, wr *verbs.SendWR) { wr.RemoteAddr += rigBytes - 2*packet },
		"QP without access": func(r *rig, _ *verbs.SendWR) {
			r.b.qps[0].Modify(&verbs.QPAttr{State: verbs.StateReset}, verbs.AttrState)
			r.must(r.b.qps[0].Modify(&verbs.QPAttr{State: verbs.StateInit, Port: 1}, verbs.InitMask(verbs.UC)))
			r.must(r.b.qps[0].Modify(r.rtr(r.b, r.a, 0), verbs.RTRMask(verbs.UC)))
		},
	} {
		r := ucRig(t, 1, sim.Options{}, 1)
		bad := r.writeImm(r.a, r.b, 0, 3*packet)
		change(r, &bad)
		r.recvInto(r.b, r.b.qps[0], 0, 100)
		r.post(r.a.qps[0], bad, r.send(r.a, 0, 100))
		r.until(func() bool { return len(r.b.wcs) == 1 && len(r.a.wcs) == 2 })
		r.wantAll(r.a.wcs, 2, verbs.WCSuccess)
		r.wantAll(r.b.wcs, 1, verbs.WCSuccess)
		r.settle()
		if !r.same(0, 100) || !isZero(r.b.mem[100:]) {
			t.Errorf("%s: memory was written", name)
		}
		if _, err := r.b.ctx.GetAsyncEvent(0); !errors.Is(err, verbs.ErrTimeout) {
			t.Errorf("%s: an event: %v", name, err)
		}
	}
}

// TestUCLacks: no reads, no atomics; they are no fault of the provider's.
func TestUCLacks(t *testing.T) {
	r := ucRig(t, 1, sim.Options{}, 1)
	for _, op := range []verbs.Opcode{verbs.OpRead, verbs.OpCompareSwap, verbs.OpFetchAdd, 99} {
		wr := r.write(r.a, r.b, 0, 8)
		wr.Op = op
		if n, err := r.a.qps[0].PostSend([]verbs.SendWR{wr}); n != 0 || !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%v on UC: %d, %v", op, n, err)
		}
	}
}

// TestUCTooLong: a SEND longer than the receive is dropped, or fails the
// receive and its QP; the sender sees a success, and nothing behind the buffer
// is touched.
func TestUCTooLong(t *testing.T) {
	s := seen{}
	for seed := range uint64(20) {
		r := ucRig(t, seed, sim.Options{}, 1)
		r.recvInto(r.b, r.b.qps[0], 0, 2*packet+5)
		r.post(r.a.qps[0], r.send(r.a, 0, 4*packet))
		r.settle()
		r.wantAll(r.a.wcs, 1, verbs.WCSuccess)
		r.wantState(r.a.qps[0], verbs.StateRTS)
		if !isZero(r.b.mem[2*packet:]) {
			t.Errorf("seed %d: memory beyond the receive was written", seed)
		}
		if len(r.b.wcs) == 0 {
			s["dropped"]++
			r.post(r.a.qps[0], r.send(r.a, 100_000, 2*packet+5))
			r.settle()
			r.wantAll(r.b.wcs, 1, verbs.WCSuccess)
			continue
		}
		s["failed"]++
		r.wantAll(r.b.wcs, 1, verbs.WCLocLenErr)
		r.wantState(r.b.qps[0], verbs.StateErr)
	}
	s.want(t, "dropped", "failed")
}

// TestUCLocalErrors: what is wrong on one's own side is told, as on RC.
func TestUCLocalErrors(t *testing.T) {
	r := ucRig(t, 1, sim.Options{}, 1)
	bad := r.write(r.a, r.b, 0, 8)
	bad.SGL[0].LKey ^= 0x5a00
	r.post(r.a.qps[0], r.write(r.a, r.b, 100, 8), bad, r.write(r.a, r.b, 200, 8))
	r.settle()
	wantCause(t, r.a.wcs, 3, verbs.WCLocProtErr)
	r.stopped(r.a.qps[0])
	r.wantState(r.b.qps[0], verbs.StateRTS)

	r = ucRig(t, 1, sim.Options{}, 1)
	_, err := r.b.qps[0].PostRecv([]verbs.RecvWR{{WRID: recvID, SGL: []verbs.SGE{{Addr: r.b.mr.Addr(), Length: 64}}}})
	r.must(err)
	r.post(r.a.qps[0], r.send(r.a, 0, 8))
	r.settle()
	r.wantAll(r.a.wcs, 1, verbs.WCSuccess)
	r.wantAll(r.b.wcs, 1, verbs.WCLocProtErr)
}
