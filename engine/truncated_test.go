package engine

import (
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"mover/reason"
)

// truncated is mapped memory of pages pages, of which those behind the first
// are gone: another program made the file shorter.
func truncated(t *testing.T, pages int64) []byte {
	t.Helper()
	fd, err := unix.MemfdCreate("mover-test", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Ftruncate(fd, pages*page()); err != nil {
		t.Fatal(err)
	}
	b, err := unix.Mmap(fd, 0, int(pages*page()), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(b) })
	if err := unix.Ftruncate(fd, page()); err != nil {
		t.Fatal(err)
	}
	return b
}

// TestSumOfTruncatedMemory: a checksum over memory that is gone is an IO_ERROR
// of its item, told by whoever computes it.
func TestSumOfTruncatedMemory(t *testing.T) {
	memory := truncated(t, 4)
	for kind, want := range map[opKind]resultKind{opSum: resultSegment, opSource: resultSourceSum, opResum: resultResum} {
		n := newFakeNode(t, 4, 4096, 1, 4)
		s := n.session
		ref := ItemRef{Item: 1}
		s.inbox.add(&recvItem{ref: ref, offer: &ItemOffer{Ref: ref, Kind: Direct, Bytes: int64(len(memory))}, phase: recvReceiving})
		n.g.ops++
		op := &Op{kind: kind, group: n.g, session: s, memory: memory, ref: ref, verify: true}
		op.Execute(new(Scratch))
		if len(s.results) != 1 || s.results[0].kind != want || s.results[0].err == nil || s.results[0].err.Code != reason.IOError {
			t.Errorf("op %d: %+v", kind, s.results)
		}
		// What is there is summed as ever.
		crc, ok := updateGuarded(0, memory[:page()])
		if !ok || crc != Checksum(memory[:page()]) {
			t.Errorf("the page that is left: %08x, %v", crc, ok)
		}
	}
}

// TestSessionOfTruncatedMemory: the item fails, and the process goes on.
func TestSessionOfTruncatedMemory(t *testing.T) {
	a := newSoftNode(t, true, []netip.Addr{netip.MustParseAddr("127.0.0.1")}, 1)
	b := newSoftNode(t, false, []netip.Addr{netip.MustParseAddr("127.0.0.2")}, 1)
	a.peer, b.peer = b, a
	a.run()
	b.run()
	waitFor(t, "up", a.up)
	i := a.newItem(0, Direct, 64*page())
	i.item.Memory = truncated(t, 64)
	a.session.Send(&i.item)
	if r := waitFor(t, "the item", i.done); r.Err == nil || i.published.Load() {
		t.Errorf("memory that is gone was moved: %+v", r)
	}
	a.session.Close(nil)
	b.session.Close(nil)
	waitFor(t, "end here", a.ended)
	waitFor(t, "end there", b.ended)
	a.shut()
	b.shut()
}
