package conformance

import (
	"bytes"

	"mover/verbs"
)

var dataCases = []testCase{
	{name: "data/write", run: func(t TB, h Harness) { eachSize(t, h, verbs.RC, verbs.OpWrite, sizes) }},
	{name: "data/write with immediate", run: func(t TB, h Harness) { eachSize(t, h, verbs.RC, verbs.OpWriteWithImm, sizes) }},
	{name: "data/send", run: func(t TB, h Harness) { eachSize(t, h, verbs.RC, verbs.OpSend, sizes) }},
	{name: "data/send with immediate", run: func(t TB, h Harness) { eachSize(t, h, verbs.RC, verbs.OpSendWithImm, sizes) }},
	{name: "data/many pieces", run: manyPieces},
	{name: "data/scattered receive", run: scatteredReceive},
	{name: "data/both directions", run: bothDirections},
	{name: "data/plain write takes no receive", run: writeTakesNoReceive},
	{name: "data/write with immediate takes one receive", run: writeImmTakesOne},
	{name: "data/last byte of the region", run: lastByte},
}

// sizes are around the packet and page boundaries, and one that needs many
// packets.
var sizes = []int{0, 1, 4095, 4096, 4097, 1<<20 + 1}

const testImm = 0xfedc0123

// eachSize moves messages of each size at an odd offset and checks both
// completions and every byte.
func eachSize(t TB, h Harness, typ verbs.QPType, op verbs.Opcode, sizes []int) {
	const from, to = 3, 1<<20 + 4096 + 5
	l := newLink(t, h, linkOpts{typ: typ, memBytes: 3 << 20})
	for i, n := range sizes {
		clear(l.b.mem)
		fill(l.a.mem[from:from+n], i)
		var recvID uint64
		wr := l.a.write(l.b, from, to, n)
		wr.Op, wr.Imm = op, testImm+uint32(i)
		switch op {
		case verbs.OpWriteWithImm:
			recvID = l.b.recv(0, 16)
		case verbs.OpSend, verbs.OpSendWithImm:
			recvID = l.b.recv(to, n)
			wr.RemoteAddr, wr.RKey = 0, 0
		}
		l.a.sent, l.b.rcvd = nil, nil
		l.a.post(wr)
		if op == verbs.OpWrite {
			l.until("the write's completion", func() bool { return len(l.a.sent) == 1 })
			l.fence(l.a, l.b)
		} else {
			l.until("both completions", func() bool { return len(l.a.sent) == 1 && len(l.b.rcvd) == 1 })
			checkRecv(t, l.b.rcvd[0], recvID, op, n, wr.Imm)
		}
		checkSent(t, l.a.sent[0], wr)
		if j := mismatch(l.b.mem[to:to+n], i); j >= 0 {
			t.Errorf("%v of %d bytes: byte %d is wrong", op, n, j)
		}
		if !isZero(l.b.mem[:to]) || !isZero(l.b.mem[to+n:]) {
			t.Errorf("%v of %d bytes: bytes around the message changed", op, n)
		}
	}
}

func checkSent(t TB, wc verbs.WC, wr verbs.SendWR) {
	t.Helper()
	want := verbs.WCRDMAWrite
	if wr.Op == verbs.OpSend || wr.Op == verbs.OpSendWithImm {
		want = verbs.WCSend
	}
	if wc.WRID != wr.WRID || wc.Status != verbs.WCSuccess || wc.Opcode != want {
		t.Errorf("completion of %v %d: %+v", wr.Op, wr.WRID, wc)
	}
}

func checkRecv(t TB, wc verbs.WC, id uint64, op verbs.Opcode, n int, imm uint32) {
	t.Helper()
	want := verbs.WCRecv
	if op == verbs.OpWriteWithImm {
		want = verbs.WCRecvRDMAWithIm
	}
	if wc.WRID != id || wc.Status != verbs.WCSuccess || wc.Opcode != want {
		t.Errorf("receive completion %#x of %v: %+v", id, op, wc)
	}
	if int(wc.ByteLen) != n {
		t.Errorf("receive completion of %v: byte_len %d, want %d", op, wc.ByteLen, n)
	}
	hasImm := op == verbs.OpWriteWithImm || op == verbs.OpSendWithImm
	if (wc.Flags&verbs.WCWithImm != 0) != hasImm {
		t.Errorf("receive completion of %v: flags %#x", op, wc.Flags)
	}
	if hasImm && wc.Imm != imm {
		t.Errorf("receive completion of %v: immediate %#x, want %#x", op, wc.Imm, imm)
	}
}

// manyPieces gathers one message from several places, an empty one among
// them.
func manyPieces(t TB, h Harness) {
	l := newLink(t, h, linkOpts{})
	fill(l.a.mem, 1)
	wr := l.a.writeImm(l.b, 0, 1000, 0, testImm)
	wr.SGL = []verbs.SGE{l.a.sge(70000, 5000), l.a.sge(10, 1), l.a.sge(20, 0), l.a.sge(100, 4096)}
	id := l.b.recv(0, 0)
	l.a.post(wr)
	l.until("both completions", func() bool { return len(l.a.sent) == 1 && len(l.b.rcvd) == 1 })
	checkSent(t, l.a.sent[0], wr)
	checkRecv(t, l.b.rcvd[0], id, wr.Op, 9097, testImm)
	want := bytes.Join([][]byte{l.a.mem[70000:75000], l.a.mem[10:11], l.a.mem[100:4196]}, nil)
	if !bytes.Equal(l.b.mem[1000:1000+len(want)], want) {
		t.Errorf("the gathered message is wrong")
	}
}

// scatteredReceive spreads one message over several places; the last one is
// only partly used.
func scatteredReceive(t TB, h Harness) {
	l := newLink(t, h, linkOpts{})
	fill(l.a.mem, 2)
	wr := verbs.RecvWR{WRID: recvBit | 77, SGL: []verbs.SGE{l.b.sge(5000, 3), l.b.sge(0, 4097), l.b.sge(90000, 8192)}}
	l.b.postRecv(wr)
	l.a.post(l.a.send(64, 6000))
	l.until("both completions", func() bool { return len(l.a.sent) == 1 && len(l.b.rcvd) == 1 })
	checkRecv(t, l.b.rcvd[0], wr.WRID, verbs.OpSend, 6000, 0)
	got := bytes.Join([][]byte{l.b.mem[5000:5003], l.b.mem[0:4097], l.b.mem[90000 : 90000+1900]}, nil)
	if !bytes.Equal(got, l.a.mem[64:6064]) {
		t.Errorf("the scattered message is wrong")
	}
	if l.b.mem[90000+1900] != 0 {
		t.Errorf("bytes after the message changed")
	}
}

// bothDirections: each side writes to the other at the same time.
func bothDirections(t TB, h Harness) {
	const n = 100_000
	l := newLink(t, h, linkOpts{})
	fill(l.a.mem[:n], 3)
	fill(l.b.mem[:n], 4)
	l.a.recv(0, 0)
	l.b.recv(0, 0)
	l.a.post(l.a.writeImm(l.b, 0, n, n, 1))
	l.b.post(l.b.writeImm(l.a, 0, n, n, 2))
	l.until("four completions", func() bool {
		return len(l.a.sent) == 1 && len(l.a.rcvd) == 1 && len(l.b.sent) == 1 && len(l.b.rcvd) == 1
	})
	if l.a.rcvd[0].Imm != 2 || l.b.rcvd[0].Imm != 1 {
		t.Errorf("immediates: %+v %+v", l.a.rcvd[0], l.b.rcvd[0])
	}
	if mismatch(l.a.mem[n:2*n], 4) >= 0 || mismatch(l.b.mem[n:2*n], 3) >= 0 {
		t.Errorf("bytes are wrong")
	}
}

// writeTakesNoReceive: without a receive posted, and with one, plain writes
// leave the receive queue alone.
func writeTakesNoReceive(t TB, h Harness) {
	l := newLink(t, h, linkOpts{})
	l.a.post(l.a.write(l.b, 0, 0, 100))
	l.until("a write without receives", func() bool { return len(l.a.sent) == 1 })
	first := l.b.recv(0, 64)
	l.a.post(l.a.write(l.b, 0, 0, 100), l.a.write(l.b, 0, 200, 0))
	l.until("writes", func() bool { return len(l.a.sent) == 3 })
	l.settle()
	if len(l.b.rcvd) != 0 {
		t.Fatalf("a plain write took a receive: %+v", l.b.rcvd)
	}
	l.a.post(l.a.send(0, 64))
	l.until("the send", func() bool { return len(l.b.rcvd) == 1 && len(l.a.sent) == 4 })
	checkRecv(t, l.b.rcvd[0], first, verbs.OpSend, 64, 0)
}

// writeImmTakesOne: one receive each, in order, and the receive's own buffer
// stays untouched.
func writeImmTakesOne(t TB, h Harness) {
	l := newLink(t, h, linkOpts{})
	fill(l.a.mem[:300], 5)
	var ids []uint64
	for range 4 {
		ids = append(ids, l.b.recv(0, 64))
	}
	l.a.post(l.a.writeImm(l.b, 0, 4096, 100, 10), l.a.writeImm(l.b, 100, 4196, 100, 11),
		l.a.writeImm(l.b, 200, 4296, 100, 12))
	l.until("three completions", func() bool { return len(l.b.rcvd) == 3 && len(l.a.sent) == 3 })
	l.settle()
	if len(l.b.rcvd) != 3 {
		t.Fatalf("three writes took %d receives", len(l.b.rcvd))
	}
	for i, wc := range l.b.rcvd {
		checkRecv(t, wc, ids[i], verbs.OpWriteWithImm, 100, 10+uint32(i))
	}
	if !isZero(l.b.mem[:64]) {
		t.Errorf("an RDMA write went into the receive's buffer")
	}
	if j := mismatch(l.b.mem[4096:4396], 5); j >= 0 {
		t.Errorf("byte %d is wrong", j)
	}
}

// lastByte: the bounds are exact; up to the end of the region is inside.
func lastByte(t TB, h Harness) {
	l := newLink(t, h, linkOpts{})
	end := len(l.b.mem)
	fill(l.a.mem[end-10:], 6)
	l.a.post(l.a.write(l.b, end-10, end-10, 10), l.a.write(l.b, end-10, 0, 1))
	l.until("two writes", func() bool { return len(l.a.sent) == 2 })
	for _, wc := range l.a.sent {
		if wc.Status != verbs.WCSuccess {
			t.Errorf("a write inside the region: %v", wc.Status)
		}
	}
	l.fence(l.a, l.b)
	if mismatch(l.b.mem[end-10:], 6) >= 0 || l.b.mem[0] != l.a.mem[end-10] {
		t.Errorf("bytes are wrong")
	}
}
