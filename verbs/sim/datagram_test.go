package sim_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net/netip"
	"slices"
	"syscall"
	"testing"

	"mover/verbs"
	"mover/verbs/sim"
)

const grh = 40 // bytes in front of a datagram

func udRig(t *testing.T, seed uint64, opt sim.Options, qps int) *rig {
	t.Helper()
	r := newRigOf(t, verbs.UD, seed, opt, qps)
	fillRandomly(r.a.mem, byte(seed))
	return r
}

// TestDatagram: the payload behind 40 bytes of GRH, whose addresses are those
// of the two ports, and a completion that names the sender.
func TestDatagram(t *testing.T) {
	for _, local := range []bool{false, true} {
		r := udRig(t, 1, sim.Options{}, 1)
		wr := r.message(r.a, r.b, 0, 0, 100)
		src, dst := gidOf(r, r.a.ctx, 1), gidOf(r, r.b.ctx, 1)
		if local { // over the link-local, IPv6, entries
			src, dst = linkLocal(r, r.a.ctx), linkLocal(r, r.b.ctx)
			var err error
			wr.AH, err = r.a.pd.CreateAH(verbs.AHAttr{IsGlobal: true, DGID: dst.GID, SGIDIndex: src.Index, HopLimit: 64, Port: 1})
			r.must(err)
		}
		wr.Op, wr.Imm = verbs.OpSendWithImm, 0xfedc0123
		r.recvInto(r.b, r.b.qps[0], 0, 4096+grh)
		r.post(r.a.qps[0], wr)
		r.until(func() bool { return len(r.b.wcs) == 1 && len(r.a.wcs) == 1 })
		r.wantAll(r.a.wcs, 1, verbs.WCSuccess)
		want := verbs.WC{WRID: recvID, Opcode: verbs.WCRecv, Flags: verbs.WCGRH | verbs.WCWithImm, ByteLen: 100 + grh,
			Imm: wr.Imm, QPN: r.b.qps[0].QPN(), SrcQPN: r.a.qps[0].QPN()}
		if r.b.wcs[0] != want {
			t.Errorf("completion %+v, want %+v", r.b.wcs[0], want)
		}
		if !bytes.Equal(r.b.mem[grh:grh+100], r.a.mem[:100]) || !isZero(r.b.mem[grh+100:]) {
			t.Error("bytes are wrong")
		}
		h := r.b.mem[:grh]
		if local {
			if h[0]>>4 != 6 || verbs.GID(h[8:24]) != src.GID || verbs.GID(h[24:40]) != dst.GID || h[7] != 64 {
				t.Errorf("GRH % x", h)
			}
			continue
		}
		ip := h[20:]
		from, to := netip.AddrFrom4([4]byte(ip[12:16])), netip.AddrFrom4([4]byte(ip[16:20]))
		if ip[0] != 0x45 || from != src.GID.Addr() || to != dst.GID.Addr() || ip[8] != 64 || ip[1] != 9 {
			t.Errorf("GRH % x", h)
		}
		// With its checksum in, a header sums up to all ones.
		var sum uint32
		for i := 0; i < 20; i += 2 {
			sum += uint32(binary.BigEndian.Uint16(ip[i:]))
		}
		if sum>>16+sum&0xffff != 0xffff {
			t.Errorf("the header's checksum is wrong: % x", ip)
		}
		r.wantNoViolation()
	}
}

func linkLocal(r *rig, ctx verbs.Context) verbs.GIDEntry {
	table, err := ctx.QueryGIDTable(1)
	r.must(err)
	i := slices.IndexFunc(table, func(e verbs.GIDEntry) bool { return e.GID.Addr().IsLinkLocalUnicast() })
	return table[i]
}

// TestDatagramDropped: what a receiver cannot take vanishes, with success at
// the sender, and the next datagram arrives.
func TestDatagramDropped(t *testing.T) {
	devices := func(mtu verbs.MTU) []sim.Device {
		return []sim.Device{{Name: "sim0", Ports: []sim.Port{{MTU: mtu}}}}
	}
	opt := sim.Options{Hosts: []sim.Host{{Name: "a", Devices: devices(verbs.MTU4096)}, {Name: "b", Devices: devices(verbs.MTU1024)}}}
	for name, change := range map[string]func(r *rig, wr *verbs.SendWR){
		"longer than the sender's MTU":   func(_ *rig, wr *verbs.SendWR) { wr.SGL[0].Length = 4097 },
		"longer than the receiver's MTU": func(_ *rig, wr *verbs.SendWR) { wr.SGL[0].Length = 1025 },
		"wrong Q_Key":                    func(_ *rig, wr *verbs.SendWR) { wr.RemoteQKey++ },
		"no such QP":                     func(_ *rig, wr *verbs.SendWR) { wr.RemoteQPN ^= 1 },
		"a QP of the sender's own port":  func(r *rig, wr *verbs.SendWR) { wr.RemoteQPN = r.a.qps[0].QPN() },
		"a QP of another transport": func(r *rig, wr *verbs.SendWR) {
			qp, err := r.b.pd.CreateQP(verbs.QPInitAttr{Type: verbs.UC, SendCQ: r.b.cq, RecvCQ: r.b.cq,
				Cap: verbs.QPCap{MaxRecvWR: 1, MaxRecvSGE: 1}})
			r.must(err)
			r.must(qp.Modify(&verbs.QPAttr{State: verbs.StateInit, Port: 1}, verbs.InitMask(verbs.UC)))
			attr := r.rtr(r.b, r.a, 0)
			attr.PathMTU = verbs.MTU1024
			r.must(qp.Modify(attr, verbs.RTRMask(verbs.UC)))
			r.recvInto(r.b, qp, 0, 1000)
			wr.RemoteQPN = qp.QPN()
		},
		"link-local to global": func(r *rig, wr *verbs.SendWR) {
			attr := r.ahAttr(r.a, r.b)
			attr.SGIDIndex = linkLocal(r, r.a.ctx).Index
			var err error
			wr.AH, err = r.a.pd.CreateAH(attr)
			r.must(err)
		},
	} {
		r := udRig(t, 1, opt, 1)
		bad, good := r.message(r.a, r.b, 0, 0, 100), r.message(r.a, r.b, 0, 0, 1024)
		r.recvInto(r.b, r.b.qps[0], 0, 8000)
		change(r, &bad)
		r.post(r.a.qps[0], bad)
		r.settle()
		r.wantAll(r.a.wcs, 1, verbs.WCSuccess)
		r.wantAll(r.b.wcs, 0, verbs.WCSuccess)
		if !isZero(r.b.mem) || r.f.Stats().LostMessages != 1 {
			t.Errorf("%s: memory was written, or %+v", name, r.f.Stats())
		}
		r.post(r.a.qps[0], good)
		r.settle()
		r.wantAll(r.b.wcs, 1, verbs.WCSuccess)
	}

	r := udRig(t, 1, opt, 1)
	r.post(r.a.qps[0], r.message(r.a, r.b, 0, 0, 100)) // no receive
	r.settle()
	r.wantAll(r.a.wcs, 1, verbs.WCSuccess)
	r.recvInto(r.b, r.b.qps[0], 0, 140)
	r.settle()
	r.wantAll(r.b.wcs, 0, verbs.WCSuccess)
	if r.f.Stats().RNR != 1 {
		t.Errorf("%+v", r.f.Stats())
	}
}

// TestDatagramOwnQKey: a Q_Key with the highest bit set stands for that of the
// sender's QP.
func TestDatagramOwnQKey(t *testing.T) {
	r := udRig(t, 1, sim.Options{}, 1)
	r.recvInto(r.b, r.b.qps[0], 0, 1000)
	wr := r.message(r.a, r.b, 0, 0, 100)
	wr.RemoteQKey = 1 << 31
	r.post(r.a.qps[0], wr)
	r.until(func() bool { return len(r.b.wcs) == 1 })
}

// TestDatagramTooLongForReceive: dropped, or LOC_LEN_ERR and the QP in ERR.
func TestDatagramTooLongForReceive(t *testing.T) {
	s := seen{}
	for seed := range uint64(20) {
		r := udRig(t, seed, sim.Options{}, 1)
		r.recvInto(r.b, r.b.qps[0], 0, 100) // the GRH was forgotten
		r.post(r.a.qps[0], r.message(r.a, r.b, 0, 0, 100))
		r.settle()
		r.wantAll(r.a.wcs, 1, verbs.WCSuccess)
		if !isZero(r.b.mem[100:]) {
			t.Errorf("seed %d: memory behind the receive was written", seed)
		}
		if len(r.b.wcs) == 0 {
			s["dropped"]++
			r.wantState(r.b.qps[0], verbs.StateRTS)
			continue
		}
		s["failed"]++
		r.wantAll(r.b.wcs, 1, verbs.WCLocLenErr)
		r.wantState(r.b.qps[0], verbs.StateErr)
	}
	s.want(t, "dropped", "failed")
}

// TestDatagramRefused: what a post of UD has to say, and what UD lacks.
func TestDatagramRefused(t *testing.T) {
	r := udRig(t, 1, sim.Options{}, 1)
	destroyed, err := r.a.pd.CreateAH(r.ahAttr(r.a, r.b))
	r.must(err)
	r.must(destroyed.Destroy())
	if err := destroyed.Destroy(); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("destroy an AH twice: %v", err)
	}
	for name, change := range map[string]func(*verbs.SendWR){
		"no AH":            func(wr *verbs.SendWR) { wr.AH = nil },
		"a destroyed AH":   func(wr *verbs.SendWR) { wr.AH = destroyed },
		"a QPN of 25 bits": func(wr *verbs.SendWR) { wr.RemoteQPN |= 1 << 24 },
		"write":            func(wr *verbs.SendWR) { wr.Op = verbs.OpWrite },
		"write with imm":   func(wr *verbs.SendWR) { wr.Op = verbs.OpWriteWithImm },
		"read":             func(wr *verbs.SendWR) { wr.Op = verbs.OpRead },
		"atomic":           func(wr *verbs.SendWR) { wr.Op = verbs.OpFetchAdd },
	} {
		wr := r.message(r.a, r.b, 0, 0, 8)
		change(&wr)
		if n, err := r.a.qps[0].PostSend([]verbs.SendWR{wr}); n != 0 || !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%s: %d, %v", name, n, err)
		}
	}
	r.wantNoViolation()
}

// TestDatagramLoss: each datagram stands for itself, and the sender sees
// successes.
func TestDatagramLoss(t *testing.T) {
	forSeeds(t, 10, func(t *testing.T, seed uint64) {
		r := udRig(t, seed, sim.Options{Faults: sim.Faults{LosePacket: .3}}, 1)
		const n = 60
		for i := range n {
			r.recvInto(r.b, r.b.qps[0], i*200, 200)
			wr := r.message(r.a, r.b, 0, i*100, 100)
			wr.Op, wr.Imm = verbs.OpSendWithImm, uint32(i)
			r.post(r.a.qps[0], wr)
		}
		r.settle()
		r.wantAll(r.a.wcs, n, verbs.WCSuccess)
		for i, wc := range r.b.wcs {
			if got := r.b.mem[i*200+grh : i*200+grh+100]; !bytes.Equal(got, r.a.mem[wc.Imm*100:wc.Imm*100+100]) {
				t.Errorf("datagram %d is wrong", wc.Imm)
			}
			if i > 0 && wc.Imm <= r.b.wcs[i-1].Imm {
				t.Errorf("datagram %d after %d, of one QP for one port", wc.Imm, r.b.wcs[i-1].Imm)
			}
		}
		lost := n - len(r.b.wcs)
		if st := r.f.Stats(); lost == 0 || lost == n || st.LostPackets != uint64(lost) || st.LostMessages != uint64(lost) {
			t.Errorf("%d lost: %+v", lost, r.f.Stats())
		}
		r.wantNoViolation()
	})
}

// TestDatagramOrder: two QPs overtake each other; one QP overtakes itself only
// where a fault asks for it.
func TestDatagramOrder(t *testing.T) {
	for _, reorder := range []float64{0, .5} {
		own, other := 0, 0
		for seed := range uint64(30) {
			r := udRig(t, seed, sim.Options{Faults: sim.Faults{ReorderUD: reorder}}, 2)
			for i := range 10 {
				r.recvInto(r.b, r.b.qps[0], 0, 200)
				r.recvInto(r.b, r.b.qps[0], 0, 200)
				for _, qp := range r.a.qps {
					wr := r.message(r.a, r.b, 0, 0, 100) // both to the first QP
					wr.Op, wr.Imm = verbs.OpSendWithImm, uint32(i)
					r.post(qp, wr)
				}
			}
			r.until(func() bool { return len(r.b.wcs) == 20 })
			latest := map[uint32]uint32{}
			for _, wc := range r.b.wcs {
				for qpn, imm := range latest {
					if wc.Imm < imm && qpn == wc.SrcQPN {
						own++
					} else if wc.Imm < imm {
						other++
					}
				}
				latest[wc.SrcQPN] = max(latest[wc.SrcQPN], wc.Imm)
			}
		}
		if (own > 0) != (reorder > 0) || other == 0 {
			t.Errorf("with ReorderUD %v: %d passed one of their own QP, %d one of another", reorder, own, other)
		}
	}
}
