//go:build linux

package soft

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"

	"mover/verbs"
)

func TestPacketRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		u32 := rapid.Uint32()
		u24 := rapid.Uint32Range(0, 1<<24-1)
		payload := rapid.IntRange(0, maxPayload).Draw(t, "payload")
		p := packet{service: rapid.SampledFrom([]verbs.QPType{verbs.UC, verbs.UD}).Draw(t, "service"),
			op:     rapid.SampledFrom([]frameOp{frameWrite, frameWriteImm, frameSend, frameSendImm}).Draw(t, "op"),
			dstQPN: u24.Draw(t, "dst"), psn: u24.Draw(t, "psn"), payloadLen: payload}
		if p.service == verbs.UD {
			p.op |= frameSend // the other two are UC's
			if p.op > frameSendImm {
				p.op = frameSend
			}
			p.flags = packetFirst | packetLast
			p.qkey, p.srcQPN, p.msgLen = u32.Draw(t, "qkey"), u24.Draw(t, "src"), uint32(payload)
		} else {
			copy(p.token[:], rapid.SliceOfN(rapid.Byte(), tokenBytes, tokenBytes).Draw(t, "token"))
			p.flags = packetFirst
			p.msgLen = rapid.Uint32Range(uint32(payload), maxMsg).Draw(t, "length")
			if !p.op.sends() {
				p.addr, p.rkey = rapid.Uint64().Draw(t, "addr"), u32.Draw(t, "rkey")
			}
		}
		if p.op.hasImm() {
			p.imm = u32.Draw(t, "imm")
		}
		b := make([]byte, packetBytes+payload)
		p.encode((*[packetBytes]byte)(b))
		var got packet
		if err := got.decode(b); err != nil || got != p {
			t.Fatalf("%+v came back as %+v, %v", p, got, err)
		}
	})
}

func TestPacketRefused(t *testing.T) {
	uc := packet{service: verbs.UC, op: frameWriteImm, flags: packetFirst | packetLast, msgLen: 5, imm: 1}
	ud := packet{service: verbs.UD, op: frameSend, flags: packetFirst | packetLast, msgLen: 5}
	for _, c := range []struct {
		name  string
		of    packet
		spoil func(b []byte) []byte
	}{
		{"cut short", uc, func(b []byte) []byte { return b[:packetBytes-1] }},
		{"nothing", uc, func(b []byte) []byte { return nil }},
		{"magic", uc, func(b []byte) []byte { b[0]++; return b }},
		{"version", uc, func(b []byte) []byte { b[2]++; return b }},
		{"cipher", uc, func(b []byte) []byte { b[5] = 1; return b }},
		{"reserved", uc, func(b []byte) []byte { b[7] = 1; return b }},
		{"reserved at the end", uc, func(b []byte) []byte { b[55] = 1; return b }},
		{"op 0", uc, func(b []byte) []byte { b[3] = 0; return b }},
		{"op beyond", uc, func(b []byte) []byte { b[3] = 5; return b }},
		{"flag", uc, func(b []byte) []byte { b[4] |= 8; return b }},
		{"service RC", uc, func(b []byte) []byte { b[6] = 2; return b }},
		{"QPN of 25 bits", uc, func(b []byte) []byte { b[8] = 1; return b }},
		{"PSN of 25 bits", uc, func(b []byte) []byte { b[12] = 1; return b }},
		{"length above 2^31", uc, func(b []byte) []byte { b[4], b[48] = packetFirst, 0x81; return b }},
		{"more payload than message", uc, func(b []byte) []byte { b[4], b[51] = packetFirst, 4; return b }},
		{"whole but short", uc, func(b []byte) []byte { b[51] = 6; return b }},
		{"immediate of a write", uc, func(b []byte) []byte { b[3] = byte(frameWrite); return b }},
		{"address of a send", uc, func(b []byte) []byte { b[3], b[32] = byte(frameSendImm), 1; return b }},
		{"rkey of a send", uc, func(b []byte) []byte { b[3], b[43] = byte(frameSendImm), 1; return b }},
		{"payload too long", uc, func(b []byte) []byte { return append(b, make([]byte, maxPayload)...) }},
		{"UD write", ud, func(b []byte) []byte { b[3] = byte(frameWrite); return b }},
		{"UD of several packets", ud, func(b []byte) []byte { b[4] = packetFirst; return b }},
		{"UD reserved", ud, func(b []byte) []byte { b[31] = 1; return b }},
		{"UD source of 25 bits", ud, func(b []byte) []byte { b[20] = 1; return b }},
		{"UD length", ud, func(b []byte) []byte { b[51] = 6; return b }},
	} {
		b := make([]byte, packetBytes+5)
		c.of.encode((*[packetBytes]byte)(b))
		var p packet
		if err := p.decode(b); err != nil {
			t.Fatalf("%s: the sound one: %v", c.name, err)
		}
		if err := p.decode(c.spoil(b)); err == nil {
			t.Errorf("%s: accepted", c.name)
		}
	}
}

func FuzzPacket(f *testing.F) {
	for _, p := range []packet{
		{service: verbs.UC, op: frameWrite, flags: packetFirst | packetLast, msgLen: 9, addr: 1 << 47, rkey: 7, token: [tokenBytes]byte{1}},
		{service: verbs.UC, op: frameSendImm, flags: packetLast | packetSolicited, msgLen: 5000, imm: 3, psn: 0xffffff},
		{service: verbs.UD, op: frameSend, flags: packetFirst | packetLast, msgLen: 9, qkey: 5, srcQPN: 0xabcdef},
	} {
		b := make([]byte, packetBytes+9)
		p.encode((*[packetBytes]byte)(b))
		f.Add(b)
		f.Add(b[:packetBytes])
	}
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		var p packet
		if p.decode(in) != nil {
			return
		}
		if p.payloadLen != len(in)-packetBytes {
			t.Fatalf("%d bytes of payload in %d", p.payloadLen, len(in))
		}
		var out [packetBytes]byte
		if p.encode(&out); !bytes.Equal(out[:], in[:packetBytes]) {
			t.Errorf("%x is read as %+v and written as %x", in, p, out)
		}
	})
}
