package engine

import "mover/ring"

// class parts chunks, and the work they are to workers, by size: what is short
// overtakes what is long at every queue on its way, and finds slots left. Else
// a small file would wait, at both ends, for all that a huge one has queued
// there, which is as long as the slower of two disks makes it.
type class uint8

const (
	bulk class = iota
	express
	classes
)

// expressBytes is how long a chunk of class express is at most: an eighth of a
// slot, so that a slot with it is soon free again.
func expressBytes(payloadBytes int) int { return min(64<<10, payloadBytes/8) }

func classOf(bytes uint32, payloadBytes int) class {
	if int(bytes) <= expressBytes(payloadBytes) {
		return express
	}
	return bulk
}

// maxSlots is how many of a group's slots a class may hold: bulk leaves an
// eighth to express, express a half to bulk. Neither can starve the other.
func (c class) maxSlots(slots int) int {
	if c == express {
		return (slots + 1) / 2
	}
	return slots - slots/8
}

// lot is what a group sends of one class.
type lot struct {
	pull    *ring.Rx[*chunk]
	loading int  // slots with workers
	loaded  fifo // slots read, to be posted

	local, remote       int // slots in use
	maxLocal, maxRemote int
}

// newLot makes the lot of a class, and the session's end of its queue.
func newLot(c class, slots int) (lot, *ring.Tx[*chunk]) {
	push, pull := ring.NewSPSC[*chunk](ceilPowerOfTwo(slots))
	return lot{pull: pull, loaded: newFIFO(slots), maxLocal: c.maxSlots(slots)}, push
}
