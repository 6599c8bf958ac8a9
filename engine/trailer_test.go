package engine

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func drawRecords(t *rapid.T, payload int) []Record {
	var records []Record
	for range rapid.IntRange(1, 20).Draw(t, "records") {
		from := rapid.IntRange(0, payload-1).Draw(t, "from")
		n := rapid.IntRange(1, payload-from).Draw(t, "bytes")
		records = append(records, Record{Item: rapid.Uint64().Draw(t, "item"), Attempt: rapid.Uint32().Draw(t, "attempt"),
			Offset: rapid.Int64Range(0, 1<<62).Draw(t, "offset"), Bytes: uint32(n), SlotOffset: uint32(from),
			CRC: rapid.Uint32().Draw(t, "crc")})
	}
	return records
}

func TestTrailerRoundTrip(t *testing.T) {
	var s Scratch
	rapid.Check(t, func(t *rapid.T) {
		payload := rapid.IntRange(1, 9000).Draw(t, "payload")
		slot := bytes.Repeat([]byte{0xee}, payload+MaxTrailerBytes) // an earlier chunk's leftovers
		records := drawRecords(t, payload)
		n := encodeTrailer(slot, payload, records)
		if n%trailerAlign != (recordBytes*len(records)+footerBytes)%trailerAlign || n > len(slot) {
			t.Fatalf("a write of %d bytes for %d of payload", n, payload)
		}
		if start := alignUp(payload, trailerAlign); !bytes.Equal(slot[payload:start], make([]byte, start-payload)) {
			t.Fatal("the padding carries old bytes")
		}
		got, err := decodeTrailer(slot[:n], s.trailer[:], s.records[:])
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(records, got); diff != "" {
			t.Fatal(diff)
		}
		// One bit anywhere in the trailer is noticed.
		start := alignUp(payload, trailerAlign)
		at := rapid.IntRange(start, n-1-12).Draw(t, "damage") // the last 12 are reserved
		slot[at] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		if _, err := decodeTrailer(slot[:n], s.trailer[:], s.records[:]); !errors.Is(err, errTrailer) {
			t.Fatalf("byte %d of %d damaged: %v", at, n, err)
		}
	})
}

func TestTrailerHoldsMaxRecords(t *testing.T) {
	const payload = 4095 // the worst padding
	slot := make([]byte, 4096+MaxTrailerBytes)
	records := make([]Record, MaxRecords)
	for i := range records {
		records[i] = Record{Item: uint64(i), Bytes: 1, SlotOffset: uint32(i)}
	}
	var s Scratch
	got, err := decodeTrailer(slot[:encodeTrailer(slot, payload, records)], s.trailer[:], s.records[:])
	if err != nil || len(got) != MaxRecords {
		t.Fatalf("%d records, %v", len(got), err)
	}
}

// reseal makes a trailer's checksum right again, as a hostile peer would.
func reseal(written []byte) {
	if len(written) < footerBytes {
		return
	}
	le := binary.LittleEndian
	f := written[len(written)-footerBytes:]
	if count := int(le.Uint32(f[8:])); count >= 0 && count <= MaxRecords && count*recordBytes+footerBytes <= len(written) {
		body := written[len(written)-footerBytes-count*recordBytes : len(written)-footerBytes+footerCRCAt]
		le.PutUint32(f[footerCRCAt:], Checksum(body))
	}
}

func TestTrailerRefuses(t *testing.T) {
	good := func(r ...Record) []byte {
		slot := make([]byte, 4096+MaxTrailerBytes)
		return slot[:encodeTrailer(slot, 100, r)]
	}
	le := binary.LittleEndian
	ok := Record{Item: 1, Bytes: 100}
	edit := func(at int, v uint32) []byte { // at: from the footer
		w := good(ok)
		le.PutUint32(w[len(w)-footerBytes+at:], v)
		reseal(w)
		return w
	}
	for name, w := range map[string][]byte{
		"empty":                 {},
		"a footer alone":        make([]byte, footerBytes),
		"magic":                 edit(0, 1),
		"version":               edit(4, 2),
		"no records":            edit(8, 0),
		"too many records":      edit(8, MaxRecords+1),
		"records before start":  edit(8, MaxRecords),
		"count wraps":           edit(8, 1<<31+1),
		"payload too long":      edit(12, 129),
		"payload wraps":         edit(12, 1<<31),
		"record past payload":   good(Record{Bytes: 101}),
		"record of no bytes":    good(Record{Bytes: 0}),
		"record offset wraps":   good(Record{Bytes: 100, SlotOffset: 1<<32 - 50}),
		"negative item offset":  good(Record{Bytes: 1, Offset: -1}),
		"item offset overflows": good(Record{Bytes: 2, Offset: 1<<63 - 2}),
	} {
		t.Run(name, func(t *testing.T) {
			var s Scratch
			if r, err := decodeTrailer(w, s.trailer[:], s.records[:]); !errors.Is(err, errTrailer) {
				t.Errorf("accepted: %v, %v", r, err)
			}
		})
	}
}

func FuzzDecodeTrailer(f *testing.F) {
	slot := make([]byte, 4096+MaxTrailerBytes)
	f.Add(bytes.Clone(slot[:encodeTrailer(slot, 100, []Record{{Item: 1, Bytes: 60}, {Item: 2, Bytes: 40, SlotOffset: 60}})]), false)
	f.Add(bytes.Clone(slot[:encodeTrailer(slot, 64, []Record{{Bytes: 64, Offset: 1 << 40}})]), true)
	f.Add([]byte{}, false)
	f.Add(bytes.Repeat([]byte{0xff}, 300), true)
	s := new(Scratch)
	f.Fuzz(func(t *testing.T, written []byte, seal bool) {
		if seal {
			written = bytes.Clone(written)
			reseal(written)
		}
		records, err := decodeTrailer(written, s.trailer[:], s.records[:])
		if err != nil {
			if !errors.Is(err, errTrailer) {
				t.Fatalf("an error of another kind: %v", err)
			}
			return
		}
		payload := len(written) - footerBytes - len(records)*recordBytes
		for _, r := range records {
			if r.Bytes == 0 || uint64(r.SlotOffset)+uint64(r.Bytes) > uint64(payload) || r.Offset < 0 || r.Offset+int64(r.Bytes) < 0 {
				t.Fatalf("record %+v in a payload of %d", r, payload)
			}
		}
	})
}
