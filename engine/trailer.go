package engine

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// A slot is written as
//
//	payload | padding to 64 bytes | count records | footer
//
// in one RDMA Write, and the footer ends where the write ends, so that the
// receiver finds it from byte_len alone. All numbers are little endian.
//
//	record  item u64, offset u64, attempt u32, bytes u32, slot offset u32, crc u32
//	footer  magic u32, version u16, zero u16, count u32, payload bytes u32,
//	        crc u32 of the records and the footer before it, zero [12]byte
const (
	recordBytes    = 32
	footerBytes    = 32
	footerCRCAt    = 16
	trailerAlign   = 64
	trailerMagic   = 0x3154564d // "MVT1"
	trailerVersion = 1

	// MaxTrailerBytes is the room behind a slot's payload: what lets many
	// small files share a slot without a second write.
	MaxTrailerBytes = 16 << 10
	// MaxRecords is how many records that room holds, after the padding.
	MaxRecords = (MaxTrailerBytes - footerBytes - trailerAlign) / recordBytes
)

// Record says what a range of a slot's payload is.
type Record struct {
	Item       uint64
	Attempt    uint32
	Offset     int64  // in the item
	Bytes      uint32 // > 0
	SlotOffset uint32 // in the payload
	CRC        uint32 // CRC32C of the range, 0 for an item without Verify
}

func alignUp(n, to int) int { return (n + to - 1) &^ (to - 1) }

// encodeTrailer writes the trailer for payload bytes of slot and returns the
// length of the RDMA Write. The slot has MaxTrailerBytes behind its payload
// and records fit MaxRecords.
func encodeTrailer(slot []byte, payload int, records []Record) int {
	start := alignUp(payload, trailerAlign)
	clear(slot[payload:start]) // never what an earlier chunk left there
	at := start
	le := binary.LittleEndian
	for i := range records {
		r, b := &records[i], slot[at:at+recordBytes]
		le.PutUint64(b[0:], r.Item)
		le.PutUint64(b[8:], uint64(r.Offset))
		le.PutUint32(b[16:], r.Attempt)
		le.PutUint32(b[20:], r.Bytes)
		le.PutUint32(b[24:], r.SlotOffset)
		le.PutUint32(b[28:], r.CRC)
		at += recordBytes
	}
	f := slot[at : at+footerBytes]
	clear(f)
	le.PutUint32(f[0:], trailerMagic)
	le.PutUint16(f[4:], trailerVersion)
	le.PutUint32(f[8:], uint32(len(records)))
	le.PutUint32(f[12:], uint32(payload))
	le.PutUint32(f[footerCRCAt:], Checksum(slot[start:at+footerCRCAt]))
	return at + footerBytes
}

// errTrailer is a violation of the protocol by the peer.
var errTrailer = errors.New("bad slot trailer")

// decodeTrailer reads the trailer that ends written, the bytes of one RDMA
// Write. The peer could still be writing to the slot: the trailer is copied to
// private memory first and only the copy is believed. private has
// MaxTrailerBytes, records room for MaxRecords; both belong to the caller.
func decodeTrailer(written, private []byte, records []Record) ([]Record, error) {
	if len(written) < footerBytes+recordBytes {
		return nil, fmt.Errorf("%w: %d bytes are too few", errTrailer, len(written))
	}
	le := binary.LittleEndian
	f := private[:footerBytes]
	copy(f, written[len(written)-footerBytes:])
	magic, version := le.Uint32(f[0:]), le.Uint16(f[4:])
	count, payload := int(le.Uint32(f[8:])), int(le.Uint32(f[12:]))
	switch {
	case magic != trailerMagic || version != trailerVersion:
		return nil, fmt.Errorf("%w: magic %#x version %d", errTrailer, magic, version)
	case count < 1 || count > MaxRecords:
		return nil, fmt.Errorf("%w: %d records", errTrailer, count)
	case payload < 0 || payload > len(written) ||
		alignUp(payload, trailerAlign) != len(written)-footerBytes-count*recordBytes:
		return nil, fmt.Errorf("%w: %d bytes of payload, %d records in %d bytes", errTrailer, payload, count, len(written))
	}
	trailer := private[:count*recordBytes+footerBytes]
	copy(trailer, written[len(written)-len(trailer):])
	if want := le.Uint32(trailer[len(trailer)-footerBytes+footerCRCAt:]); want != Checksum(trailer[:len(trailer)-footerBytes+footerCRCAt]) {
		return nil, fmt.Errorf("%w: checksum", errTrailer)
	}
	records = records[:0]
	for i := range count {
		b := trailer[i*recordBytes:]
		r := Record{
			Item: le.Uint64(b[0:]), Offset: int64(le.Uint64(b[8:])), Attempt: le.Uint32(b[16:]),
			Bytes: le.Uint32(b[20:]), SlotOffset: le.Uint32(b[24:]), CRC: le.Uint32(b[28:]),
		}
		if r.Bytes == 0 || int64(r.Bytes) > int64(payload) || int64(r.SlotOffset) > int64(payload)-int64(r.Bytes) {
			return nil, fmt.Errorf("%w: record %d leaves the payload", errTrailer, i)
		}
		if r.Offset < 0 || r.Offset > math.MaxInt64-int64(r.Bytes) {
			return nil, fmt.Errorf("%w: record %d has offset %d", errTrailer, i, r.Offset)
		}
		records = append(records, r)
	}
	return records, nil
}
