package engine

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"

	"mover/reason"
)

// simItem is an item with what the test knows of it at both ends.
type simItem struct {
	w      *world
	index  int
	from   *simSide
	item   Item
	data   []byte // what the destination must hold
	memory []byte // Direct: the source
	faults itemFaults

	done   int
	result ItemResult
	sentAt int64
	job    *simJob // whose attempt it is, or nil
	lost   bool    // with the process at its source
	gone   bool    // with the process at its destination

	// The destination.
	opened, published, discarded, ended bool
	dest                                []byte // its memory or file
	wrote                               int64  // Staged: bytes written
	scribble                            byte   // what the memory holds once it is the Receiver's again
	reads, writes                       int
	reading, writing                    int // workers inside
}

// itemFaults are what goes wrong with an item; zero values are health.
type itemFaults struct {
	readErr, writeErr  int // the n-th call fails
	changed            bool
	refused, already   bool
	publishErr         bool
	openDelay, pubWait int64
	cancelAt           int64 // after it was sent; 0 never
	modifyAt           int64 // Direct: the source memory changes
	// The n-th read, write takes so long, as when a file system hangs.
	slowRead, slowWrite int
	slowVerify          bool
	slowFor             int64
}

// any reports whether the item may fail by itself.
func (f itemFaults) any() bool {
	return f.readErr > 0 || f.writeErr > 0 || f.changed || f.refused || f.publishErr || f.cancelAt > 0 || f.modifyAt > 0
}

// drawSize prefers the boundaries.
func (w *world) drawSize(most int64) int64 {
	p, s := int64(w.cfg.payload), int64(min(w.cfg.segment, uint32(w.cfg.depth)*w.cfg.payload))
	sizes := []int64{0, 1, 63, 64, 4095, 4096, 4097, p - 1, p, p + 1, s - 1, s, s + 1, 2*s + p + 1}
	n := sizes[w.rng.IntN(len(sizes))]
	switch w.rng.IntN(4) {
	case 0:
		n = w.rng.Int64N(most)
	case 1:
		n = w.rng.Int64N(64 * p)
	}
	return min(n, most)
}

// addItem makes an item and sends it at a time from now.
func (w *world) addItem(from *simSide, kind ItemKind, size int64, verify bool, faults itemFaults, sendIn int64) *simItem {
	i := w.newItem(from, kind, w.drawData(size, len(w.items)), verify, uint32(w.rng.IntN(3)), faults)
	w.after(sendIn, "send", i.send)
	return i
}

// drawData is content that no other number has.
func (w *world) drawData(size int64, number int) []byte {
	data := alignedMemory(roundPage(size))[:size]
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], w.seed)
	binary.LittleEndian.PutUint64(key[8:], uint64(number))
	_, _ = rand.NewChaCha8(key).Read(data) // never fails
	return data
}

func (w *world) newItem(from *simSide, kind ItemKind, data []byte, verify bool, attempt uint32, faults itemFaults) *simItem {
	i := &simItem{w: w, index: len(w.items), from: from, faults: faults, data: data}
	i.item = Item{Attempt: attempt, Kind: kind, Bytes: int64(len(data)), Verify: verify,
		Meta: binary.LittleEndian.AppendUint32(nil, uint32(i.index)), Source: i, Done: i.finished}
	if kind == Direct {
		i.memory = alignedMemory(roundPage(i.item.Bytes))
		copy(i.memory, i.data)
		i.item.Memory, i.item.Source = i.memory, nil
	}
	w.items = append(w.items, i)
	return i
}

// send gives the item to the session that there is.
func (i *simItem) send() {
	w, from := i.w, i.from
	session := from.session
	i.sentAt = w.now()
	session.Send(&i.item)
	if i.faults.cancelAt > 0 {
		from.after(i.faults.cancelAt, "cancel", func() {
			session.Cancel(&i.item, reason.New(reason.Canceled, "the test canceled it"))
		})
	}
	if i.faults.modifyAt > 0 && i.item.Kind == Direct && i.item.Bytes > 0 {
		for k := range int64(100) {
			w.after(i.faults.modifyAt+k*20*us, "modify", func() {
				if i.done == 0 {
					i.memory[w.rng.Int64N(i.item.Bytes)] ^= 0x55
				}
			})
		}
	}
}

func roundPage(n int64) int64 { return (n + 4095) &^ 4095 }

// errKilled is what a call says whose process is gone.
var errKilled = reason.New(reason.IOError, "its process was killed")

// hang makes a worker wait in a call, and counts it among those inside
// meanwhile. It reports whether the process lived on.
func (i *simItem) hang(inside *int) bool {
	*inside++
	goesOn := i.w.wait(i.faults.slowFor)
	*inside--
	return goesOn
}

// ReadAt implements Source.
func (i *simItem) ReadAt(p []byte, offset int64) (int, error) {
	if i.done > 0 {
		i.w.broken(drained, "item %d: its source is read after Done", i.index)
	}
	if len(p) == 0 || cap(p)%4096 != 0 || offset < 0 || offset+int64(len(p)) > i.item.Bytes {
		i.w.broken(counted, "item %d: ReadAt of %d bytes (cap %d) at %d of %d", i.index, len(p), cap(p), offset, i.item.Bytes)
	}
	i.reads++
	if i.reads == i.faults.slowRead && !i.hang(&i.reading) {
		return 0, errKilled
	}
	if i.reads >= i.faults.readErr && i.faults.readErr > 0 {
		return 0, reason.New(reason.IOError, "the test failed a read")
	}
	return copy(p, i.data[offset:]), nil
}

// Verify implements Source.
func (i *simItem) Verify(crc uint32) error {
	if i.done > 0 {
		i.w.broken(drained, "item %d: its source is verified after Done", i.index)
	}
	want := uint32(0)
	if i.item.Verify {
		want = Checksum(i.data)
	}
	if crc != want {
		i.w.broken(matching, "item %d: Verify of CRC32C %08x, want %08x", i.index, crc, want)
	}
	if i.faults.slowVerify && !i.hang(&i.reading) {
		return errKilled
	}
	if i.faults.changed {
		return reason.New(reason.SourceChanged, "the test changed the source")
	}
	return nil
}

// WriteAt implements Sink.
func (i *simItem) WriteAt(p []byte, offset int64) (int, error) {
	if i.ended {
		i.w.broken(drained, "item %d: its sink is written after Publish or Discard", i.index)
	}
	i.writes++
	if i.writes == i.faults.slowWrite && !i.hang(&i.writing) {
		return 0, errKilled
	}
	if i.writes >= i.faults.writeErr && i.faults.writeErr > 0 {
		return 0, reason.New(reason.NoSpace, "the test failed a write")
	}
	if offset < 0 || offset+int64(len(p)) > int64(len(i.dest)) {
		i.w.broken(counted, "item %d: WriteAt of %d bytes at %d of %d", i.index, len(p), offset, len(i.dest))
		return 0, reason.New(reason.Internal, "outside")
	}
	i.wrote += int64(len(p))
	return copy(i.dest[offset:], p), nil
}

// finished is Item.Done.
func (i *simItem) finished(r ItemResult) {
	w := i.w
	if i.lost {
		return // of a process that is no more
	}
	i.result = r
	if i.done++; i.done > 1 {
		w.broken(ends, "item %d: Done a second time: %v", i.index, r.Err)
		return
	}
	w.mix("done", int64(i.index))
	if i.reading > 0 {
		w.broken(drained, "item %d: done while a worker reads its source", i.index)
	}
	fill(i.memory, 0xdd) // it is ours again; a write still under way would carry this
	if i.job != nil {
		defer i.job.ended(i)
	}
	switch {
	case r.Err != nil:
		return
	case i.job != nil && i.job.named && !i.published: // by an attempt before
		return
	case !i.published && !i.faults.already:
		w.broken(matching, "item %d: done before it was published", i.index)
	case i.faults.already:
	case i.item.Acked() != i.item.Bytes:
		w.broken(counted, "item %d: done with %d of %d bytes acked", i.index, i.item.Acked(), i.item.Bytes)
	case i.item.Verify && i.faults.modifyAt == 0 && r.CRC != Checksum(i.data):
		w.broken(matching, "item %d: done with CRC32C %08x, want %08x", i.index, r.CRC, Checksum(i.data))
	}
	if i.faults.any() && i.faults.cancelAt == 0 && i.faults.modifyAt == 0 && i.wasHit() {
		w.broken(matching, "item %d: done although %+v", i.index, i.faults)
	}
}

// wasHit reports whether the item's fault happened.
func (i *simItem) wasHit() bool {
	f := i.faults
	return f.changed && i.item.Kind == Staged || f.refused || f.publishErr ||
		f.readErr > 0 && i.reads >= f.readErr || f.writeErr > 0 && i.writes >= f.writeErr
}

// itemOf finds what an offer is about.
func (s *simSide) itemOf(meta []byte) *simItem {
	return s.w.items[binary.LittleEndian.Uint32(meta)]
}

// Open implements Receiver.
func (s *simSide) Open(session *Session, ref ItemRef, offer *ItemOffer) {
	w := s.w
	if w.liar != nil && s.openLie(session, ref, offer) {
		return
	}
	i := s.itemOf(offer.Meta)
	if i.from == s || i.opened || offer.Bytes != i.item.Bytes || ref.Attempt != i.item.Attempt {
		w.broken(ends, "item %d: a wrong or second offer %+v", i.index, offer)
	}
	i.opened = true
	wait := ms
	var answer func()
	answer = func() {
		switch {
		case i.job != nil && i.job.open(i): // an attempt before is not over here
			wait = min(2*wait, s1)
			s.after(wait, "opened", answer)
			return
		case i.job != nil && i.job.named, i.faults.already:
			i.ended = true
			session.Opened(ref, nil, true, []byte("before"), nil)
			return
		case i.faults.refused:
			i.ended = true
			session.Opened(ref, nil, false, nil, reason.New(reason.NoSpace, "the test refused it"))
			return
		}
		t := &Target{Handle: i}
		if offer.Kind == Direct {
			t.Memory = alignedMemory(roundPage(offer.Bytes))
			i.dest = t.Memory
		} else {
			i.dest = make([]byte, offer.Bytes)
			t.Sink = i
		}
		session.Opened(ref, t, false, nil, nil)
	}
	if i.faults.openDelay == 0 && w.rng.IntN(3) == 0 {
		answer() // from within the call
		return
	}
	s.after(i.faults.openDelay+w.rng.Int64N(200*us), "opened", answer)
}

// Publish implements Receiver.
func (s *simSide) Publish(session *Session, ref ItemRef, t *Target, crc uint32, verified bool) {
	if t.Handle == nil { // of openLie
		session.Published(ref, nil, nil)
		return
	}
	i := t.Handle.(*simItem)
	w := s.w
	if i.ended {
		w.broken(ends, "item %d: Publish after Publish or Discard", i.index)
	}
	if verified != i.item.Verify || verified && crc != Checksum(i.data) && i.faults.modifyAt == 0 {
		w.broken(matching, "item %d: Publish with CRC32C %08x, want %08x", i.index, crc, Checksum(i.data))
	}
	i.checkFree(s)
	s.after(i.faults.pubWait+w.rng.Int64N(300*us), "synced", func() {
		if i.faults.publishErr {
			session.Published(ref, nil, reason.New(reason.IOError, "the test failed a sync"))
			return
		}
		i.published, i.ended = true, true
		if !i.corruptible() && !bytes.Equal(i.dest[:i.item.Bytes], i.data) {
			w.broken(matching, "item %d: published with other bytes, the first at %d", i.index, firstDifference(i.dest, i.data))
		}
		if i.job != nil {
			i.job.publish(i)
		}
		i.release()
		answer := func() { session.Published(ref, []byte("ok"), nil) }
		if i.job == nil {
			answer()
			return
		}
		s.after(w.rng.Int64N(2*ms), "published", answer) // a process may be killed in between
	})
}

// checkFree: a destination goes to the Receiver when nobody writes to it any
// more.
func (i *simItem) checkFree(s *simSide) {
	if i.writing > 0 {
		i.w.broken(drained, "item %d: published or discarded while a worker writes to its sink", i.index)
	}
	if i.item.Kind == Direct && i.w.f.Writable(s.host, i.dest) {
		i.w.broken(drained, "item %d: published or discarded while the peer may write to its memory", i.index)
	}
}

// corruptible items may arrive changed without anybody noticing.
func (i *simItem) corruptible() bool {
	return i.faults.modifyAt > 0 || !i.item.Verify && i.w.f.Stats().Corrupted > 0
}

func firstDifference(a, b []byte) int {
	for k := range b {
		if a[k] != b[k] {
			return k
		}
	}
	return -1
}

// Discard implements Receiver.
func (s *simSide) Discard(session *Session, ref ItemRef, t *Target, why *reason.Error) {
	if t.Handle == nil {
		session.Discarded(ref)
		return
	}
	i := t.Handle.(*simItem)
	if i.ended || why == nil {
		s.w.broken(ends, "item %d: Discard after Publish or Discard, or without a reason", i.index)
	}
	i.checkFree(s)
	i.discarded, i.ended = true, true
	i.release()
	s.after(s.w.rng.Int64N(300*us), "discarded", func() { session.Discarded(ref) })
}

// release marks memory that nothing may write to from now on. A published
// item's registration lives until the session hears of it, but no write does.
func (i *simItem) release() {
	if i.job != nil && i.item.Kind == Staged {
		return // a file: its content is looked at in the end
	}
	i.scribble = 0xe1
	fill(i.dest, i.scribble)
}

// fill and filled work on ranges, which the race detector takes as one access.
func fill(p []byte, v byte) {
	if len(p) == 0 {
		return
	}
	p[0] = v
	for n := 1; n < len(p); n *= 2 {
		copy(p[n:], p[:n])
	}
}

func filled(p []byte, v byte) bool { return bytes.Count(p, []byte{v}) == len(p) }

// checkItem is the last look at an item, when everything is over.
func (i *simItem) checkItem() {
	w := i.w
	if i.done != 1 && !i.lost && i.sentAt > 0 {
		w.broken(ends, "item %d: Done called %d times", i.index, i.done)
	}
	if i.opened && i.dest != nil && !i.ended && !i.gone {
		w.broken(ends, "item %d: neither published nor discarded", i.index)
	}
	if i.published && i.discarded {
		w.broken(ends, "item %d: published and discarded", i.index)
	}
	if i.scribble != 0 {
		if !filled(i.dest, i.scribble) {
			w.broken(drained, "item %d: the destination was written after its end", i.index)
		}
	}
	if !i.lost && i.done > 0 && !filled(i.memory, 0xdd) {
		w.broken(drained, "item %d: the source memory was written", i.index)
	}
}
