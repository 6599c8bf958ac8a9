package job

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"mover/reason"
)

// The encoding of groups is on the path of small files, so it is binary: one
// byte of version, then the fields in the order of the types. Numbers are
// varints in their shortest form (signed ones zigzag), bytes and text have
// their length before them, flags are bits of which unknown ones are refused:
// every value has one encoding, and nothing stands behind the last field.

var errGroup = errors.New("the peer's description of a group is cut short or malformed")

// Bits of a group, behind the overwrite policy's number.
const (
	groupDurable = 1 << iota
	groupFinal
	groupCompareCRC
)

// Bits of an entry: which optional fields follow.
const (
	entryOwner = 1 << iota
	entryXattrs
	entryCRC
)

// Append appends the encoded group to dst, which may have room to spare: it
// allocates only if dst must grow. The error is a *FieldError (the caller
// filled something in that no peer would accept) or that the description is
// larger than MaxGroupMetaBytes.
func (g *GroupManifest) Append(dst []byte) ([]byte, error) {
	if err := g.validate(); err != nil {
		return dst, fmt.Errorf("describe the group: %w", err)
	}
	start := len(dst)
	b := append(dst, groupVersion)
	b = append(b, g.Job[:]...)
	b = binary.AppendUvarint(b, uint64(g.Group))
	b = binary.AppendUvarint(b, uint64(g.Attempt))
	for _, s := range []string{g.Owner, g.SourceNode, g.SourceRoot, g.Root} {
		b = appendText(b, s)
	}
	b = appendText(b, g.Base)
	b = append(b, byte(slices.Index(overwrites[:], g.Overwrite)))
	b = append(b, bit(g.Durable, groupDurable)|bit(g.Final, groupFinal)|bit(g.Compare == CompareCRC, groupCompareCRC))
	var kept byte
	for _, p := range g.Preserve {
		kept |= 1 << slices.Index(preserves[:], p)
	}
	b = append(b, kept)
	b = binary.AppendUvarint(b, uint64(len(g.Entries)))
	for i := range g.Entries {
		b = g.Entries[i].append(b)
	}
	if len(b)-start > MaxGroupMetaBytes {
		return dst, fmt.Errorf("describe the group: %w", refuse("entries", "take more than %d bytes", MaxGroupMetaBytes))
	}
	return b, nil
}

// EncodedSize is an upper bound of what the entry takes of a group's
// description, bytes.
func (e *GroupEntry) EncodedSize() int {
	n := 2 + 5 + len(e.Path) + 5 + len(e.Target) + 5 + 10 + 10 + 10 + 5
	for _, x := range e.Xattrs {
		n += 10 + len(x.Name) + len(x.Value)
	}
	return n
}

func (e *GroupEntry) append(b []byte) []byte {
	owner := e.UID != 0 || e.GID != 0
	b = append(b, byte(e.Kind), bit(owner, entryOwner)|bit(len(e.Xattrs) > 0, entryXattrs)|bit(e.HasCRC, entryCRC))
	b = appendText(b, e.Path)
	switch e.Kind {
	case EntryFile:
		b = binary.AppendUvarint(b, uint64(e.Size))
		b = binary.AppendUvarint(b, uint64(e.Mode))
	case EntryDir:
		b = binary.AppendUvarint(b, uint64(e.Mode))
	default:
		b = appendText(b, e.Target)
	}
	if e.Kind != EntryHardlink {
		b = binary.AppendVarint(b, e.MtimeNS)
	}
	if owner {
		b = binary.AppendUvarint(b, uint64(e.UID))
		b = binary.AppendUvarint(b, uint64(e.GID))
	}
	if len(e.Xattrs) > 0 {
		b = binary.AppendUvarint(b, uint64(len(e.Xattrs)))
		for _, x := range e.Xattrs {
			b = appendText(b, x.Name)
			b = appendText(b, x.Value)
		}
	}
	if e.HasCRC {
		b = binary.LittleEndian.AppendUint32(b, e.CRC32C)
	}
	return b
}

// DecodeGroup reads what Append wrote. The input is a peer's and trusted in
// nothing. Paths, targets, xattr values and Base refer to data, which must not
// change while they are used. Errors: ErrManifestVersion, *FieldError, or that
// the description is malformed.
func DecodeGroup(data []byte) (*GroupManifest, error) {
	r, err := newReader(data, groupVersion)
	if err != nil {
		return nil, err
	}
	g := &GroupManifest{}
	copy(g.Job[:], r.take(len(g.Job)))
	g.Group, g.Attempt = r.uint32(), r.uint32()
	for _, s := range []*string{&g.Owner, &g.SourceNode, &g.SourceRoot, &g.Root} {
		*s = string(r.text(256))
	}
	g.Base = r.text(maxPathBytes)
	g.Overwrite = r.choice(overwrites[:])
	flags := r.flags(groupDurable | groupFinal | groupCompareCRC)
	g.Durable, g.Final, g.Compare = flags&groupDurable != 0, flags&groupFinal != 0, CompareMtime
	if flags&groupCompareCRC != 0 {
		g.Compare = CompareCRC
	}
	kept := r.flags(1<<len(preserves) - 1)
	for i, p := range preserves {
		if kept&(1<<i) != 0 {
			g.Preserve = append(g.Preserve, p)
		}
	}
	// The shortest entry takes 5 bytes: a count alone cannot cost memory.
	if n := r.count(min(MaxGroupEntries, len(r.rest)/5)); n > 0 {
		g.Entries = make([]GroupEntry, n)
	}
	for i := range g.Entries {
		g.Entries[i].read(r)
	}
	if err := r.end(); err != nil {
		return nil, err
	}
	if err := g.validate(); err != nil {
		return nil, fmt.Errorf("read the group's description: %w", err)
	}
	return g, nil
}

func (e *GroupEntry) read(r *reader) {
	e.Kind = EntryKind(r.byte())
	flags := r.flags(entryOwner | entryXattrs | entryCRC)
	e.Path = r.text(maxPathBytes)
	switch e.Kind {
	case EntryFile:
		e.Size, e.Mode = int64(r.count(MaxGroupBytes)), r.uint32()
	case EntryDir:
		e.Mode = r.uint32()
	case EntrySymlink, EntryHardlink:
		e.Target = r.text(maxPathBytes)
	default:
		r.bad = true
	}
	if e.Kind != EntryHardlink {
		e.MtimeNS = r.varint()
	}
	if flags&entryOwner != 0 {
		e.UID, e.GID = r.uint32(), r.uint32()
		r.bad = r.bad || e.UID == 0 && e.GID == 0
	}
	if flags&entryXattrs != 0 {
		n := r.count(MaxXattrs)
		r.bad = r.bad || n == 0
		for i := 0; i < n && !r.bad; i++ {
			e.Xattrs = append(e.Xattrs, Xattr{Name: string(r.text(255)), Value: r.text(MaxXattrBytes)})
		}
	}
	if flags&entryCRC != 0 {
		e.HasCRC = true
		if b := r.take(4); b != nil {
			e.CRC32C = binary.LittleEndian.Uint32(b)
		}
	}
}

// Encode returns the bytes that travel. The error is a *FieldError.
func (d *GroupDone) Encode() ([]byte, error) {
	if err := d.validate(); err != nil {
		return nil, fmt.Errorf("describe the group's end: %w", err)
	}
	b := []byte{groupAnswerVersion, bit(d.Durable, 1) | bit(d.Verified, 2)}
	b = binary.AppendUvarint(b, uint64(len(d.Exceptions)))
	for _, x := range d.Exceptions {
		b = binary.AppendUvarint(b, uint64(x.Index))
		b = append(b, byte(x.Outcome))
		if x.Outcome == EntryFailed {
			b = binary.AppendUvarint(b, uint64(x.Code.Wire()))
			b = appendText(b, cutDetail(x.Detail))
		}
	}
	return b, nil
}

// DecodeGroupDone reads what Encode wrote, of a group of entries entries;
// errors as of DecodeGroup. A reason that this version does not know becomes
// INTERNAL.
func DecodeGroupDone(data []byte, entries int) (*GroupDone, error) {
	r, err := newReader(data, groupAnswerVersion)
	if err != nil {
		return nil, err
	}
	flags := r.flags(3)
	d := &GroupDone{Durable: flags&1 != 0, Verified: flags&2 != 0}
	n := r.count(min(entries, MaxGroupEntries))
	for i := 0; i < n && !r.bad; i++ {
		x := GroupException{Index: uint32(r.count(entries - 1)), Outcome: Outcome(r.byte())}
		if x.Outcome == EntryFailed {
			wire := r.count(1<<16 - 1)
			x.Detail = cleanDetail(string(r.text(MaxGroupDetail)))
			var ok bool
			if x.Code, ok = reason.FromWire(uint16(wire)); !ok {
				x.Code = reason.Internal
			}
		}
		d.Exceptions = append(d.Exceptions, x)
	}
	if err := r.end(); err != nil {
		return nil, err
	}
	if err := d.validate(); err != nil {
		return nil, fmt.Errorf("read the group's end: %w", err)
	}
	return d, nil
}
