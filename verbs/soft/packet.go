//go:build linux

package soft

import (
	"encoding/binary"
	"errors"

	"mover/verbs"
)

// UC and UD send UDP datagrams: a header of packetBytes, then payload. A
// message is one packet, or on UC as many as the path MTU demands; all but the
// last carry a full MTU.
//
//	 0 magic u16           2 version u8    3 op u8
//	 4 flags u8            5 cipher u8     6 service u8    7 zero
//	 8 destination QPN u32                12 PSN u32
//	16 UC: token (16 bytes)
//	   UD: Q_Key u32, source QPN u32, zero (8 bytes)
//	32 addr u64           40 rkey u32     44 imm u32
//	48 length u32         52 zero u32
//
// All fields are in network order. length is that of the whole message. Fields
// that the op does not have are zero. A datagram is never answered.
const (
	packetMagic   = 0x4d50
	packetVersion = 1
	packetBytes   = 56
	tokenBytes    = 16
	maxPayload    = 4096
)

const (
	packetFirst     = 1 << 0 // the first of its message
	packetLast      = 1 << 1
	packetSolicited = 1 << 2
	packetFlags     = packetFirst | packetLast | packetSolicited
)

// packet is a decoded packet header.
type packet struct {
	op         frameOp // frameWrite..frameSendImm
	flags      uint8
	service    verbs.QPType // UC, UD
	dstQPN     uint32
	psn        uint32
	token      [tokenBytes]byte // UC
	qkey       uint32           // UD
	srcQPN     uint32           // UD
	addr       uint64
	rkey, imm  uint32
	msgLen     uint32
	payloadLen int // set by decode
}

var (
	errPacketMagic   = errors.New("soft: not a packet")
	errPacketVersion = errors.New("soft: packet of another version or cipher")
	errPacketField   = errors.New("soft: packet field out of range")
)

func (p *packet) encode(b *[packetBytes]byte) {
	be := binary.BigEndian
	be.PutUint16(b[0:], packetMagic)
	b[2], b[3], b[4], b[5], b[6], b[7] = packetVersion, uint8(p.op), p.flags, cipherNone, uint8(p.service), 0
	be.PutUint32(b[8:], p.dstQPN)
	be.PutUint32(b[12:], p.psn)
	if p.service == verbs.UC {
		copy(b[16:32], p.token[:])
	} else {
		be.PutUint32(b[16:], p.qkey)
		be.PutUint32(b[20:], p.srcQPN)
		be.PutUint64(b[24:], 0)
	}
	be.PutUint64(b[32:], p.addr)
	be.PutUint32(b[40:], p.rkey)
	be.PutUint32(b[44:], p.imm)
	be.PutUint32(b[48:], p.msgLen)
	be.PutUint32(b[52:], 0)
}

// decode reads the header of a datagram and refuses every value that no sender
// writes; the payload is b[packetBytes:]. It does not allocate.
func (p *packet) decode(b []byte) error {
	be := binary.BigEndian
	switch {
	case len(b) < packetBytes || be.Uint16(b) != packetMagic:
		return errPacketMagic
	case b[2] != packetVersion || b[5] != cipherNone:
		return errPacketVersion
	}
	*p = packet{op: frameOp(b[3]), flags: b[4], service: verbs.QPType(b[6]),
		dstQPN: be.Uint32(b[8:]), psn: be.Uint32(b[12:]), addr: be.Uint64(b[32:]),
		rkey: be.Uint32(b[40:]), imm: be.Uint32(b[44:]), msgLen: be.Uint32(b[48:]), payloadLen: len(b) - packetBytes}
	if p.op < frameWrite || p.op > frameSendImm || p.flags&^packetFlags != 0 || b[7] != 0 || be.Uint32(b[52:]) != 0 ||
		p.dstQPN >= 1<<24 || p.psn >= 1<<24 || p.payloadLen > maxPayload || uint64(p.msgLen) > maxMsg {
		return errPacketField
	}
	if p.op.sends() && (p.addr != 0 || p.rkey != 0) || !p.op.hasImm() && p.imm != 0 {
		return errPacketField
	}
	const whole = packetFirst | packetLast
	switch p.service {
	case verbs.UC:
		p.token = [tokenBytes]byte(b[16:32])
		if p.flags&whole == whole && int(p.msgLen) != p.payloadLen || int(p.msgLen) < p.payloadLen {
			return errPacketField
		}
	case verbs.UD:
		p.qkey, p.srcQPN = be.Uint32(b[16:]), be.Uint32(b[20:])
		if !p.op.sends() || p.flags&whole != whole || be.Uint64(b[24:]) != 0 || p.srcQPN >= 1<<24 ||
			int(p.msgLen) != p.payloadLen {
			return errPacketField
		}
	default:
		return errPacketField
	}
	return nil
}

// hasImm reports whether the op carries an immediate.
func (o frameOp) hasImm() bool { return o == frameWriteImm || o == frameSendImm }
