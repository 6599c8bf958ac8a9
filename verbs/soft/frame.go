//go:build linux

package soft

import (
	"encoding/binary"
	"errors"
)

// The stream of a connection is a sequence of frames: a header of headerBytes,
// then length bytes of payload. A message (one send WR) is one frame, or
// several of at most maxFrameBytes so that acknowledgements of the other
// direction can pass between them.
//
//	 0 magic u16      2 version u8   3 op u8
//	 4 flags u8       5 code u8      6 cipher u8   7 zero u8
//	 8 length u32    12 imm u32
//	16 addr u64
//	24 rkey u32      28 msn u32
//	32 ack u32       36 credit u32
//
// All fields are in network order.
const (
	frameMagic    = 0x4d56
	frameVersion  = 1
	cipherNone    = 0
	headerBytes   = 40
	maxFrameBytes = 4 << 20
)

type frameOp uint8

const (
	frameWrite    frameOp = 1
	frameWriteImm frameOp = 2
	frameSend     frameOp = 3
	frameSendImm  frameOp = 4
	// frameAck carries only the ack and credit fields, as every frame does.
	frameAck frameOp = 16
	// frameNak ends the connection: message msn failed with code.
	frameNak frameOp = 17
	// frameWant says that message msn waits for a receive WR: the attempt
	// that gets an RNR NAK on hardware. code is the sender's rnr_retry.
	frameWant frameOp = 18
)

const (
	flagLast      = 1 << 0 // the last frame of its message
	flagSolicited = 1 << 1
	flagsKnown    = flagLast | flagSolicited
)

// nakCode is why a responder refused a message.
type nakCode uint8

const (
	nakNone      nakCode = 0
	nakAccess    nakCode = 1
	nakInvalid   nakCode = 2
	nakRNR       nakCode = 3
	nakOperation nakCode = 4
)

// header is a decoded frame header.
type header struct {
	op     frameOp
	flags  uint8
	code   uint8
	length uint32
	imm    uint32
	addr   uint64
	rkey   uint32
	// msn numbers the messages of one direction from 0.
	msn uint32
	// ack is the number of messages that the frame's sender has placed, and
	// credit the number of receive WRs it has posted, since the connection
	// began; both modulo 2^32.
	ack, credit uint32
}

var (
	errFrameMagic   = errors.New("soft: not a frame")
	errFrameVersion = errors.New("soft: frame of another version or cipher")
	errFrameField   = errors.New("soft: frame field out of range")
)

func (h *header) encode(b *[headerBytes]byte) {
	be := binary.BigEndian
	be.PutUint16(b[0:], frameMagic)
	b[2] = frameVersion
	b[3] = uint8(h.op)
	b[4] = h.flags
	b[5] = h.code
	b[6] = cipherNone
	b[7] = 0
	be.PutUint32(b[8:], h.length)
	be.PutUint32(b[12:], h.imm)
	be.PutUint64(b[16:], h.addr)
	be.PutUint32(b[24:], h.rkey)
	be.PutUint32(b[28:], h.msn)
	be.PutUint32(b[32:], h.ack)
	be.PutUint32(b[36:], h.credit)
}

// decode reads a header and refuses every value that no sender writes. It does
// not allocate.
func (h *header) decode(b *[headerBytes]byte) error {
	be := binary.BigEndian
	if be.Uint16(b[0:]) != frameMagic {
		return errFrameMagic
	}
	if b[2] != frameVersion || b[6] != cipherNone {
		return errFrameVersion
	}
	*h = header{
		op: frameOp(b[3]), flags: b[4], code: b[5],
		length: be.Uint32(b[8:]), imm: be.Uint32(b[12:]), addr: be.Uint64(b[16:]),
		rkey: be.Uint32(b[24:]), msn: be.Uint32(b[28:]), ack: be.Uint32(b[32:]), credit: be.Uint32(b[36:]),
	}
	if b[7] != 0 || h.flags&^flagsKnown != 0 || h.length > maxFrameBytes {
		return errFrameField
	}
	switch h.op {
	case frameWrite, frameWriteImm, frameSend, frameSendImm:
		// A message goes on only behind a full frame.
		if h.code != 0 || h.flags&flagLast == 0 && h.length != maxFrameBytes {
			return errFrameField
		}
	case frameAck:
		if h.length != 0 || h.code != 0 || h.flags != 0 {
			return errFrameField
		}
	case frameNak:
		if h.length != 0 || h.flags != 0 || h.code == 0 || nakCode(h.code) > nakOperation {
			return errFrameField
		}
	case frameWant:
		if h.length != 0 || h.flags != 0 || h.code > 7 {
			return errFrameField
		}
	default:
		return errFrameField
	}
	return nil
}

// wantsReceive reports whether the op consumes a receive WR.
func (o frameOp) wantsReceive() bool { return o != frameWrite && o <= frameSendImm }

// sends reports whether the op's payload goes into a receive WR.
func (o frameOp) sends() bool { return o == frameSend || o == frameSendImm }
