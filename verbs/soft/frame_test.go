//go:build linux

package soft

import (
	"testing"

	"pgregory.net/rapid"
)

func TestHeaderRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		u32 := rapid.Uint32()
		h := header{op: rapid.SampledFrom([]frameOp{frameWrite, frameWriteImm, frameSend, frameSendImm, frameAck, frameNak, frameWant}).Draw(t, "op"),
			imm: u32.Draw(t, "imm"), addr: rapid.Uint64().Draw(t, "addr"), rkey: u32.Draw(t, "rkey"),
			msn: u32.Draw(t, "msn"), ack: u32.Draw(t, "ack"), credit: u32.Draw(t, "credit")}
		switch {
		case h.op <= frameSendImm:
			h.length = rapid.Uint32Range(0, maxFrameBytes).Draw(t, "length")
			h.flags = flagLast | rapid.SampledFrom([]uint8{0, flagSolicited}).Draw(t, "solicited")
		case h.op == frameNak:
			h.code = rapid.Uint8Range(1, uint8(nakOperation)).Draw(t, "code")
		case h.op == frameWant:
			h.code = rapid.Uint8Range(0, 7).Draw(t, "code")
		}
		var b [headerBytes]byte
		var got header
		h.encode(&b)
		if err := got.decode(&b); err != nil || got != h {
			t.Fatalf("%+v came back as %+v, %v", h, got, err)
		}
	})
}

func TestHeaderRefused(t *testing.T) {
	for name, spoil := range map[string]func(b *[headerBytes]byte){
		"magic":               func(b *[headerBytes]byte) { b[0]++ },
		"version":             func(b *[headerBytes]byte) { b[2]++ },
		"cipher":              func(b *[headerBytes]byte) { b[6] = 1 },
		"reserved":            func(b *[headerBytes]byte) { b[7] = 1 },
		"op 0":                func(b *[headerBytes]byte) { b[3] = 0 },
		"op between":          func(b *[headerBytes]byte) { b[3] = 5 },
		"op beyond":           func(b *[headerBytes]byte) { b[3] = 19 },
		"flag":                func(b *[headerBytes]byte) { b[4] |= 4 },
		"code of data":        func(b *[headerBytes]byte) { b[5] = 1 },
		"length":              func(b *[headerBytes]byte) { b[8] = 1 },
		"short and not last":  func(b *[headerBytes]byte) { b[4] = 0 },
		"ack with payload":    func(b *[headerBytes]byte) { b[3], b[4], b[11] = 16, 0, 1 },
		"nak without a code":  func(b *[headerBytes]byte) { b[3], b[4], b[11] = 17, 0, 0 },
		"nak of unknown code": func(b *[headerBytes]byte) { b[3], b[4], b[5], b[11] = 17, 0, 9, 0 },
		"want of 8 retries":   func(b *[headerBytes]byte) { b[3], b[4], b[5], b[11] = 18, 0, 8, 0 },
	} {
		h := header{op: frameWrite, flags: flagLast, length: 5}
		var b [headerBytes]byte
		h.encode(&b)
		if err := h.decode(&b); err != nil {
			t.Fatal(err)
		}
		spoil(&b)
		if err := h.decode(&b); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func FuzzHeader(f *testing.F) {
	var b [headerBytes]byte
	for _, h := range []header{{op: frameWrite, flags: flagLast, length: 1 << 20, addr: 1 << 47, rkey: 7},
		{op: frameAck, ack: 3, credit: 9}, {op: frameNak, code: 2}, {op: frameWant, code: 7}} {
		h.encode(&b)
		f.Add(b[:])
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) < headerBytes {
			return
		}
		raw := [headerBytes]byte(in)
		var h header
		if h.decode(&raw) != nil {
			return
		}
		var out [headerBytes]byte
		if h.encode(&out); out != raw {
			t.Errorf("%x is read as %+v and written as %x", raw, h, out)
		}
	})
}
