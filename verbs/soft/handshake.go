//go:build linux

package soft

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"

	"mover/verbs"
)

// A connection starts with three messages of fixed size:
//
//	dialler -> acceptor  hello    proves the acceptor's secret
//	acceptor -> dialler  reply    proves the dialler's secret
//	dialler -> acceptor  confirm  so that the acceptor keeps no connection
//	                              that its dialler has given up
//
// A proof is an HMAC-SHA256 over the message, keyed with the secret of the QP
// it is sent to; secrets travel in ConnData only. The nonce of the hello is in
// all three, so none can be replayed into another connection.
const (
	helloMagic       = 0x6d767273 // "mvrs"
	handshakeVersion = 1
	secretBytes      = 16
	macBytes         = sha256.Size
	helloBytes       = 72 + macBytes
)

type handshakeKind uint8

const (
	kindHello handshakeKind = 1 + iota
	kindReply
	kindConfirm
)

// hello is any of the three messages.
//
//	 0 magic u32   4 version u8   5 cipher u8   6 kind u8   7 zero
//	 8 destination QPN u32       12 source QPN u32
//	16 destination GID           32 source GID
//	48 nonce (16 bytes)          64 source TCP port u16   66 zero (6 bytes)
//	72 HMAC
type hello struct {
	kind           handshakeKind
	dstQPN, srcQPN uint32
	dstGID, srcGID verbs.GID
	nonce          [16]byte
	srcPort        uint16
}

var errHandshake = errors.New("soft: bad handshake")

func (h *hello) encode(secret *[secretBytes]byte) []byte {
	b := make([]byte, helloBytes)
	be := binary.BigEndian
	be.PutUint32(b[0:], helloMagic)
	b[4], b[5], b[6] = handshakeVersion, cipherNone, byte(h.kind)
	be.PutUint32(b[8:], h.dstQPN)
	be.PutUint32(b[12:], h.srcQPN)
	copy(b[16:], h.dstGID[:])
	copy(b[32:], h.srcGID[:])
	copy(b[48:], h.nonce[:])
	be.PutUint16(b[64:], h.srcPort)
	copy(b[72:], proof(secret, b[:72]))
	return b
}

// decode checks the form only; prove checks the proof.
func (h *hello) decode(b []byte) error {
	be := binary.BigEndian
	switch {
	case len(b) != helloBytes || be.Uint32(b) != helloMagic:
		return fmt.Errorf("%w: not a mover connection", errHandshake)
	case b[4] != handshakeVersion:
		return fmt.Errorf("%w: version %d, this side speaks %d", errHandshake, b[4], handshakeVersion)
	case b[5] != cipherNone:
		return fmt.Errorf("%w: cipher %d is unknown", errHandshake, b[5])
	case b[7] != 0 || !bytes.Equal(b[66:72], make([]byte, 6)):
		return fmt.Errorf("%w: reserved bytes set", errHandshake)
	}
	*h = hello{kind: handshakeKind(b[6]), dstQPN: be.Uint32(b[8:]), srcQPN: be.Uint32(b[12:]),
		dstGID: verbs.GID(b[16:32]), srcGID: verbs.GID(b[32:48]), nonce: [16]byte(b[48:64]), srcPort: be.Uint16(b[64:])}
	if h.kind < kindHello || h.kind > kindConfirm || h.dstQPN >= 1<<24 || h.srcQPN >= 1<<24 {
		return fmt.Errorf("%w: field out of range", errHandshake)
	}
	return nil
}

// prove reports whether b carries the proof of secret, in constant time.
func prove(secret *[secretBytes]byte, b []byte) bool {
	return len(b) == helloBytes && hmac.Equal(b[72:], proof(secret, b[:72]))
}

func proof(secret *[secretBytes]byte, b []byte) []byte {
	m := hmac.New(sha256.New, secret[:])
	m.Write(b)
	return m.Sum(nil)
}

// answer is the next message in the other direction.
func (h *hello) answer(kind handshakeKind, port uint16) *hello {
	return &hello{kind: kind, dstQPN: h.srcQPN, srcQPN: h.dstQPN, dstGID: h.srcGID, srcGID: h.dstGID,
		nonce: h.nonce, srcPort: port}
}

// connData is QP.ConnData of a connected QP: version u8, kind u8, port u16,
// secret.
type connData struct {
	kind   connKind
	port   uint16 // of TCP or UDP
	secret [secretBytes]byte
}

// connKind says what a port stands for, so that an RC and a UC QP are not
// connected by mistake.
type connKind uint8

const (
	connStream   connKind = 0 // RC: the device's TCP port
	connDatagram connKind = 1 // UC: the QP's UDP port
)

const (
	connDataVersion = 1
	connDataBytes   = 4 + secretBytes
)

func (c *connData) encode() []byte {
	b := make([]byte, connDataBytes)
	b[0], b[1] = connDataVersion, byte(c.kind)
	binary.BigEndian.PutUint16(b[2:], c.port)
	copy(b[4:], c.secret[:])
	return b
}

// decode wants the data of a QP of one kind.
func (c *connData) decode(b []byte, kind connKind) error {
	switch {
	case len(b) == 0:
		return errors.New("the peer's ConnData is missing: it is no soft QP")
	case b[0] != connDataVersion:
		return fmt.Errorf("the peer's ConnData has version %d, this side speaks %d", b[0], connDataVersion)
	case len(b) != connDataBytes || connKind(b[1]) > connDatagram:
		return fmt.Errorf("the peer's ConnData is malformed (%d bytes)", len(b))
	case connKind(b[1]) != kind:
		return errors.New("the peer's QP is of another transport")
	}
	c.kind = kind
	c.port = binary.BigEndian.Uint16(b[2:])
	c.secret = [secretBytes]byte(b[4:])
	if c.port == 0 {
		return errors.New("the peer's ConnData has port 0")
	}
	return nil
}

func newSecret() (s [secretBytes]byte) {
	rand.Read(s[:]) // never fails (crypto/rand)
	return s
}

// endpoint names one end of a connection. The listening port is part of it
// because two processes may use one address.
type endpoint struct {
	gid  verbs.GID
	port uint16
	qpn  uint32
}

// compare orders endpoints; of two ends the lower one dials.
func (e endpoint) compare(o endpoint) int {
	if c := bytes.Compare(e.gid[:], o.gid[:]); c != 0 {
		return c
	}
	if e.port != o.port {
		return int(e.port) - int(o.port)
	}
	return int(e.qpn) - int(o.qpn)
}
