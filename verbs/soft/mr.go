//go:build linux

package soft

import (
	"crypto/rand"
	"encoding/binary"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"mover/verbs"
)

// deregWait bounds how long Dereg waits for the system call in progress. Such
// a call does not block, so only a descheduled thread makes the wait visible.
const deregWait = 10 * time.Second

// mrDead is set in memory.use once the region is deregistered.
const mrDead = 1 << 62

// memory is a registered region. The low bits of use count the system calls
// and copies that touch the region right now: the QPs' owners enter and leave
// around each, Dereg sets mrDead and waits for zero. So no byte is read or
// written after Dereg has returned, and neither side takes a lock.
type memory struct {
	use    atomic.Int64
	mem    []byte
	addr   uint64
	access verbs.Access
	pd     *domain
	lkey   uint32
	rkey   uint32
	freed  bool // guarded by pd.dev.mu
}

func (m *memory) PD() verbs.PD   { return m.pd }
func (m *memory) LKey() uint32   { return m.lkey }
func (m *memory) RKey() uint32   { return m.rkey }
func (m *memory) Addr() uint64   { return m.addr }
func (m *memory) Length() uint64 { return uint64(len(m.mem)) }

// enter takes the region for one system call; false when it is gone.
func (m *memory) enter() bool {
	if m.use.Add(1)&mrDead == 0 {
		return true
	}
	m.use.Add(-1)
	return false
}

func (m *memory) leave() { m.use.Add(-1) }

// slice is [addr, addr+n) of the region, nil when it is not inside. The form
// of the test cannot wrap.
func (m *memory) slice(addr uint64, n uint32) []byte {
	off := addr - m.addr
	if addr < m.addr || uint64(n) > uint64(len(m.mem)) || off > uint64(len(m.mem))-uint64(n) {
		return nil
	}
	return m.mem[off : off+uint64(n) : off+uint64(n)]
}

// Dereg revokes the keys and returns when no QP touches the memory any more. A
// message that is being placed or sent fails its QP at the next piece.
// ETIMEDOUT when a thread is stuck inside a system call on this memory: the
// keys are revoked, but the memory must stay mapped; call again.
func (m *memory) Dereg() error {
	m.pd.forget(m)
	m.use.Or(mrDead)
	deadline := time.Now().Add(deregWait)
	for m.use.Load() != mrDead {
		if time.Now().After(deadline) {
			return &verbs.Error{Op: "deregister MR", Errno: syscall.ETIMEDOUT,
				Detail: "a system call on this memory is still running; keep it mapped and call again"}
		}
		time.Sleep(20 * time.Microsecond)
	}
	return m.pd.release(m)
}

// keyTable maps keys to regions. Look-ups come from the pollers and take no
// lock; changes copy the map, which is fine because registering is rare and
// costs a system call or more on real hardware.
type keyTable struct {
	mu    sync.Mutex
	lkeys atomic.Pointer[map[uint32]*memory]
	rkeys atomic.Pointer[map[uint32]*memory]
}

func (t *keyTable) init() {
	t.lkeys.Store(&map[uint32]*memory{})
	t.rkeys.Store(&map[uint32]*memory{})
}

func (t *keyTable) local(key uint32) *memory  { return (*t.lkeys.Load())[key] }
func (t *keyTable) remote(key uint32) *memory { return (*t.rkeys.Load())[key] }

func (t *keyTable) change(m *memory, add bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, side := range []struct {
		table *atomic.Pointer[map[uint32]*memory]
		key   uint32
	}{{&t.lkeys, m.lkey}, {&t.rkeys, m.rkey}} {
		old := *side.table.Load()
		next := make(map[uint32]*memory, len(old)+1)
		for k, v := range old {
			next[k] = v
		}
		if add {
			next[side.key] = m
		} else {
			delete(next, side.key)
		}
		side.table.Store(&next)
	}
}

// keySource hands out random keys that are neither in use nor among the last
// retiredKeys, so a stale key in flight cannot name new memory.
type keySource struct {
	live    map[uint32]struct{} // in use or retired
	retired [retiredKeys]uint32
	next    int
}

const retiredKeys = 4096

func (s *keySource) take() uint32 {
	var b [4]byte
	for {
		rand.Read(b[:]) // never fails (crypto/rand)
		k := binary.LittleEndian.Uint32(b[:])
		if _, used := s.live[k]; k != 0 && !used {
			s.live[k] = struct{}{}
			return k
		}
	}
}

func (s *keySource) retire(k uint32) {
	if old := s.retired[s.next]; old != 0 {
		delete(s.live, old)
	}
	s.retired[s.next] = k
	s.next = (s.next + 1) % retiredKeys
}

// addressOf is the virtual address of mem, which is not Go heap memory and so
// does not move.
func addressOf(mem []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(mem)))) }
