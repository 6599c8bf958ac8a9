package fabric

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"

	"mover/verbs"
)

// The attributes of connections. On rxe a retry count of 7 is for ever; a
// receiver that is not ready is waited for, since the run has a deadline of
// its own. A min RNR timer of 12 is 0.64 ms; 0 would be 655 ms.
const (
	ackTimeout  = 14 // 67 ms, perftest's
	ackEmulated = 18 // 1.1 s
	retryCount  = 6
	rnrRetry    = 7
	minRNRTimer = 12
	benchQKey   = 0x11111111 // perftest's
)

// What is posted inline when the choice is left to the test: perftest's.
const (
	autoInline   = 236
	autoInlineUD = 188
)

// recvBit marks the wr_id of a receive: an error completion has no valid
// opcode. Bits 32.. are the lane's index at its poller, the rest the index of
// the WR.
const recvBit = 1 << 63

// lane is one QP with its memory. After its creation it is used by one
// goroutine at a time: the poller's while a run lasts.
type lane struct {
	number int // among all QPs of the run
	index  int // at its poller
	port   *Port
	layout *layout
	qp     verbs.QP
	ah     verbs.AH // UD
	psn    uint32
	peer   end

	source, target         []byte // its own, nil where it has none
	sourceAddr, targetAddr uint64
	sourceKey, targetKey   uint32
	targetRKey             uint32

	tx *sender   // nil when it only receives
	rx *receiver // nil when it only sends
}

func (n *lane) wrid(index int) uint64 { return uint64(n.index)<<32 | uint64(index) }

// create makes the QP. inline is what it shall take; it is given up silently
// where auto and the provider has none.
func (n *lane) create(pd verbs.PD, cq verbs.CQ, c *Config) error {
	attr := verbs.QPInitAttr{Type: c.Transport, SendCQ: cq, RecvCQ: cq,
		Cap: verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}}
	if n.target != nil {
		attr.Cap.MaxRecvWR = n.layout.receives
	}
	if n.source != nil {
		attr.Cap.MaxSendWR = n.layout.inFlight + 1 // and the closing message
		attr.Cap.MaxInlineBytes = inlineFor(c, n.layout.sizeBytes)
	}
	var err error
	n.qp, err = pd.CreateQP(attr)
	if err != nil && c.InlineBytes == InlineAuto && attr.Cap.MaxInlineBytes > 0 &&
		(errors.Is(err, verbs.ErrUnsupported) || errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOMEM)) {
		attr.Cap.MaxInlineBytes = 0
		n.qp, err = pd.CreateQP(attr)
	}
	if err != nil {
		return fmt.Errorf("creating QP %d (%v, %d sends, %d receives, %d bytes inline): %w",
			n.number, c.Transport, attr.Cap.MaxSendWR, attr.Cap.MaxRecvWR, attr.Cap.MaxInlineBytes, err)
	}
	var b [4]byte
	rand.Read(b[:]) // never fails (crypto/rand)
	n.psn = binary.LittleEndian.Uint32(b[:]) & (1<<24 - 1)
	if n.source != nil {
		inline := attr.Cap.MaxInlineBytes > 0 && n.layout.sizeBytes <= n.qp.Cap().MaxInlineBytes
		n.tx = newSender(n, c, inline)
	}
	if n.target != nil {
		n.rx = newReceiver(n, c)
	}
	return nil
}

// inlineFor is how many inline bytes a QP is asked for.
func inlineFor(c *Config, sizeBytes int) int {
	most := c.InlineBytes
	if most == InlineAuto {
		most = 0
		if c.Test != Bandwidth {
			most = autoInline
		}
		if c.Test != Bandwidth && c.Transport == verbs.UD {
			most = autoInlineUD
		}
	}
	if sizeBytes > most {
		return 0
	}
	return most
}

// end describes the lane to the other side.
func (n *lane) end() end {
	e := end{QPN: n.qp.QPN(), PSN: n.psn, LID: n.port.Attr.LID, GID: gidHex(n.port.GID.GID), ConnData: n.qp.ConnData()}
	if n.target != nil {
		e.Addr, e.Bytes, e.RKey = n.targetAddr, uint64(len(n.target)), n.targetRKey
	}
	return e
}

// connect takes the QP from RESET to RTS, towards the peer; receives are
// posted in INIT, before the peer can send.
func (n *lane) connect(pd verbs.PD, c *Config, mtu verbs.MTU, peer end) error {
	n.peer = peer
	if n.tx != nil && c.Op == Write && peer.Bytes < uint64(n.layout.targetBytes()) {
		return badFrame("a ring of %d bytes, not %d", peer.Bytes, n.layout.targetBytes())
	}
	if n.port.isGlobal() && verbs.GID(peer.GID).IsZero() {
		return badFrame("no GID")
	}
	fail := func(to string, err error) error {
		return fmt.Errorf("connecting QP %d (GID index %d, %v) to QPN %#x at %v: to %s: %w", n.number, n.port.GID.Index,
			n.port.GID.GID.Addr(), peer.QPN, verbs.GID(peer.GID).Addr(), to, err)
	}
	init := &verbs.QPAttr{State: verbs.StateInit, Port: n.port.Number, QKey: benchQKey}
	if n.target != nil && c.Op == Write {
		init.AccessFlags = verbs.AccessRemoteWrite
	}
	if err := n.qp.Modify(init, verbs.InitMask(c.Transport)); err != nil {
		return fail("INIT", err)
	}
	if n.rx != nil {
		if err := n.rx.postAgain(); err != nil {
			return fail("posting receives", err)
		}
	}
	rtr := &verbs.QPAttr{State: verbs.StateRTR, AV: n.port.av(&peer), PathMTU: mtu, DestQPN: peer.QPN, RQPSN: peer.PSN,
		MinRNRTimer: minRNRTimer, RemoteConnData: peer.ConnData}
	if err := n.qp.Modify(rtr, verbs.RTRMask(c.Transport)); err != nil {
		return fail("RTR", err)
	}
	rts := &verbs.QPAttr{State: verbs.StateRTS, SQPSN: n.psn, Timeout: uint8(n.port.ackTimeout(c)), RetryCnt: retryCount, RNRRetry: rnrRetry}
	if err := n.qp.Modify(rts, verbs.RTSMask(c.Transport)); err != nil {
		return fail("RTS", err)
	}
	if c.Transport == verbs.UD && n.tx != nil {
		ah, err := pd.CreateAH(n.port.av(&peer))
		if err != nil {
			return fail("address handle", err)
		}
		n.ah = ah
	}
	if n.tx != nil {
		n.tx.aim()
	}
	return nil
}

// toErr makes everything outstanding complete with a flush.
func (n *lane) toErr() error {
	return n.qp.Modify(&verbs.QPAttr{State: verbs.StateErr}, verbs.AttrState)
}
