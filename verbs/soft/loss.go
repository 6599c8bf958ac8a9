//go:build linux

package soft

import (
	"errors"
	"sync/atomic"

	"mover/verbs"
)

// Drops counts the UC and UD packets that a device has dropped, as sender and
// as receiver, since it was opened. What the kernel drops is not in it.
type Drops struct {
	// Malformed: not of this protocol, or not what the rest of its message
	// demands.
	Malformed uint64
	// Foreign: not for the QP whose socket it came to, or from a sender that
	// does not know the token (UC) or the Q_Key (UD).
	Foreign uint64
	// Gap: the rest of a UC message of which a packet was missing.
	Gap uint64
	// NoReceive: no receive WR was posted.
	NoReceive uint64
	// Access: a UC write that the rkey or the QP does not allow.
	Access uint64
	// Unsent: the kernel refused the packet, or LosePackets took it.
	Unsent uint64
}

// dropCounts is Drops under construction, by many pollers.
type dropCounts struct {
	malformed, foreign, gap, noReceive, access, unsent atomic.Uint64
}

// Drops may be called from any goroutine. Reach it with an interface assertion
// on the verbs.Context.
func (d *device) Drops() Drops {
	c := &d.drops
	return Drops{Malformed: c.malformed.Load(), Foreign: c.foreign.Load(), Gap: c.gap.Load(),
		NoReceive: c.noReceive.Load(), Access: c.access.Load(), Unsent: c.unsent.Load()}
}

// lossRule says which packets are lost on purpose.
type lossRule struct {
	pick func(n int) bool
	next atomic.Int64
}

func (r *lossRule) lost() bool { return r.pick(int(r.next.Add(1) - 1)) }

// LosePackets makes a soft device lose the UC and UD packets for which pick is
// true instead of sending them; packets are counted from 0 at this call, in
// the order sent. A nil pick ends it. It is for tests; any goroutine may call
// it, and pick runs on the pollers of the device. The error is not nil when
// ctx is not a soft device.
func LosePackets(ctx verbs.Context, pick func(n int) bool) error {
	d, ok := ctx.(*device)
	if !ok {
		return errors.New("soft: not a soft device")
	}
	if pick == nil {
		d.loss.Store(nil)
		return nil
	}
	d.loss.Store(&lossRule{pick: pick})
	return nil
}
