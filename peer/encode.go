package peer

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"mover/engine"
	"mover/peer/peerpb"
	"mover/verbs"
)

// Limits of the wire form, beyond those of package engine.
const (
	// maxDetailBytes bounds text for people; longer text is cut when sent and
	// a violation when received.
	maxDetailBytes = 1 << 10
	// maxNameBytes bounds names of providers and devices (IBV_SYSFS_NAME_MAX
	// is 64).
	maxNameBytes = 64
	// maxFrameBytes is above the largest legal frame: MaxBatch acks, each with
	// maxDetailBytes of text.
	maxFrameBytes = 2 << 20
)

// toFrame makes the wire form of m. The frame shares only byte slices (Meta,
// ConnData) with m. An error wraps ErrMessage.
func toFrame(m engine.Message) (*peerpb.Frame, error) {
	e := encoder{}
	f := e.frame(m)
	if e.err != nil {
		return nil, e.err
	}
	return f, nil
}

// encoder keeps the first thing that does not fit the protocol.
type encoder struct{ err error }

func (e *encoder) fail(format string, args ...any) {
	if e.err == nil {
		e.err = fmt.Errorf("%w: %s", ErrMessage, fmt.Sprintf(format, args...))
	}
}

func (e *encoder) frame(m engine.Message) *peerpb.Frame {
	switch m := m.(type) {
	case *engine.Open:
		return &peerpb.Frame{Body: &peerpb.Frame_Open{Open: &peerpb.Open{
			Ports: list(e, "Open.Ports", m.Ports, engine.MaxPorts, e.portOffer), PayloadBytes: m.PayloadBytes,
			LanesPerRail: uint32(m.LanesPerRail), LaneDepth: uint32(m.LaneDepth), SegmentBytes: m.SegmentBytes}}}
	case *engine.GroupOpen:
		return &peerpb.Frame{Body: &peerpb.Frame_GroupOpen{GroupOpen: &peerpb.GroupOpen{
			Group: uint32(m.Group), Slots: m.Slots, StrideBytes: m.StrideBytes, RegionSlots: m.RegionSlots,
			Regions: list(e, "GroupOpen.Regions", m.Regions, engine.MaxBatch, e.region)}}}
	case *engine.LaneOpen:
		return &peerpb.Frame{Body: &peerpb.Frame_LaneOpen{LaneOpen: &peerpb.LaneOpen{
			Lanes: list(e, "LaneOpen.Lanes", m.Lanes, engine.MaxBatch, e.laneEnd)}}}
	case *engine.LaneOpened:
		return &peerpb.Frame{Body: &peerpb.Frame_LaneOpened{LaneOpened: &peerpb.LaneOpened{
			Lanes: list(e, "LaneOpened.Lanes", m.Lanes, engine.MaxBatch, e.laneEnd)}}}
	case *engine.LaneReady:
		return &peerpb.Frame{Body: &peerpb.Frame_LaneReady{LaneReady: &peerpb.LaneReady{
			Lanes: list(e, "LaneReady.Lanes", m.Lanes, engine.MaxBatch, e.laneRef)}}}
	case *engine.LaneDown:
		return &peerpb.Frame{Body: &peerpb.Frame_LaneDown{LaneDown: &peerpb.LaneDown{
			Lane: e.laneRef(&m.Lane), Cause: clip(m.Cause),
			Slots:    list(e, "LaneDown.Slots", m.Slots, engine.MaxBatch, e.slotRef),
			Segments: list(e, "LaneDown.Segments", m.Segments, engine.MaxBatch, e.slotRef)}}}
	case *engine.LaneDownAnswer:
		return &peerpb.Frame{Body: &peerpb.Frame_LaneDownAnswer{LaneDownAnswer: &peerpb.LaneDownAnswer{
			Lane:     e.laneRef(&m.Lane),
			Slots:    list(e, "LaneDownAnswer.Slots", m.Slots, engine.MaxBatch, e.slotRef),
			Segments: list(e, "LaneDownAnswer.Segments", m.Segments, engine.MaxBatch, e.slotRef)}}}
	case *engine.Ping:
		return &peerpb.Frame{Body: &peerpb.Frame_Ping{Ping: &peerpb.Ping{Seq: m.Seq}}}
	case *engine.Pong:
		return &peerpb.Frame{Body: &peerpb.Frame_Pong{Pong: &peerpb.Pong{Seq: m.Seq}}}
	case *engine.Bye:
		return &peerpb.Frame{Body: &peerpb.Frame_Bye{Bye: &peerpb.Bye{Code: uint32(m.Code), Detail: clip(m.Detail)}}}
	}
	return e.itemFrame(m)
}

func (e *encoder) itemFrame(m engine.Message) *peerpb.Frame {
	switch m := m.(type) {
	case *engine.ItemOffer:
		return &peerpb.Frame{Body: &peerpb.Frame_ItemOffer{ItemOffer: &peerpb.ItemOffer{
			Ref: e.itemRef(&m.Ref), Kind: peerpb.ItemKind(m.Kind), Bytes: m.Bytes, Verify: m.Verify,
			Meta: e.meta("ItemOffer.Meta", m.Meta)}}}
	case *engine.ItemAnswer:
		return &peerpb.Frame{Body: &peerpb.Frame_ItemAnswer{ItemAnswer: &peerpb.ItemAnswer{
			Ref: e.itemRef(&m.Ref), Code: uint32(m.Code), Detail: clip(m.Detail),
			Regions: list(e, "ItemAnswer.Regions", m.Regions, engine.MaxBatch, e.memoryRegion)}}}
	case *engine.SegmentGrants:
		return &peerpb.Frame{Body: &peerpb.Frame_SegmentGrants{SegmentGrants: &peerpb.SegmentGrants{
			Grants: list(e, "SegmentGrants.Grants", m.Grants, engine.MaxBatch, e.segmentGrant)}}}
	case *engine.SegmentAcks:
		return &peerpb.Frame{Body: &peerpb.Frame_SegmentAcks{SegmentAcks: &peerpb.SegmentAcks{
			Acks: list(e, "SegmentAcks.Acks", m.Acks, engine.MaxBatch, e.segmentAck)}}}
	case *engine.RecordAcks:
		return &peerpb.Frame{Body: &peerpb.Frame_RecordAcks{RecordAcks: &peerpb.RecordAcks{
			Acks: list(e, "RecordAcks.Acks", m.Acks, engine.MaxBatch, e.recordAck)}}}
	case *engine.ItemCommit:
		return &peerpb.Frame{Body: &peerpb.Frame_ItemCommit{ItemCommit: &peerpb.ItemCommit{
			Ref: e.itemRef(&m.Ref), Crc: m.CRC}}}
	case *engine.ItemDone:
		return &peerpb.Frame{Body: &peerpb.Frame_ItemDone{ItemDone: &peerpb.ItemDone{
			Ref: e.itemRef(&m.Ref), Code: uint32(m.Code), Detail: clip(m.Detail), Meta: e.meta("ItemDone.Meta", m.Meta)}}}
	case *engine.ItemAbort:
		return &peerpb.Frame{Body: &peerpb.Frame_ItemAbort{ItemAbort: &peerpb.ItemAbort{
			Ref: e.itemRef(&m.Ref), Code: uint32(m.Code), Detail: clip(m.Detail)}}}
	}
	e.fail("%T has no wire form", m)
	return nil
}

func (e *encoder) portOffer(p *engine.PortOffer) *peerpb.PortOffer {
	if len(p.Pollers) > engine.MaxGroups {
		e.fail("PortOffer.Pollers has %d entries, at most %d fit", len(p.Pollers), engine.MaxGroups)
	}
	out := &peerpb.PortOffer{
		Provider: e.name("PortOffer.Provider", p.Provider), Device: e.name("PortOffer.Device", p.Device),
		Port: uint32(p.Port), LinkLayer: peerpb.LinkLayer(p.LinkLayer), Gid: e.gid(p.GID),
		GidType: peerpb.GIDType(p.GIDType), Lid: uint32(p.LID), Mtu: peerpb.MTU(p.MTU), RateBits: p.RateBits,
		Down: p.Down, GrhRequired: p.GRHRequired,
	}
	for _, n := range p.Pollers {
		out.Pollers = append(out.Pollers, uint32(n))
	}
	return out
}

func (e *encoder) region(r *engine.Region) *peerpb.Region {
	return &peerpb.Region{Rail: uint32(r.Rail), Addr: r.Addr, Rkey: r.RKey}
}

func (e *encoder) laneEnd(l *engine.LaneEnd) *peerpb.LaneEnd {
	if len(l.ConnData) > verbs.MaxConnData {
		e.fail("LaneEnd.ConnData has %d bytes, at most %d fit", len(l.ConnData), verbs.MaxConnData)
	}
	return &peerpb.LaneEnd{Lane: uint32(l.Lane), Epoch: l.Epoch, Qpn: l.QPN, Psn: l.PSN, Gid: e.gid(l.GID),
		Lid: uint32(l.LID), Mtu: peerpb.MTU(l.MTU), ConnData: l.ConnData}
}

func (e *encoder) laneRef(l *engine.LaneRef) *peerpb.LaneRef {
	return &peerpb.LaneRef{Lane: uint32(l.Lane), Epoch: l.Epoch}
}

func (e *encoder) slotRef(s *engine.SlotRef) *peerpb.SlotRef {
	return &peerpb.SlotRef{Index: s.Index, Generation: s.Generation}
}

func (e *encoder) itemRef(r *engine.ItemRef) *peerpb.ItemRef {
	return &peerpb.ItemRef{Item: r.Item, Attempt: r.Attempt}
}

func (e *encoder) memoryRegion(r *engine.MemoryRegion) *peerpb.MemoryRegion {
	return &peerpb.MemoryRegion{Rail: uint32(r.Rail), Offset: r.Offset, Bytes: r.Bytes, Addr: r.Addr, Rkey: r.RKey}
}

func (e *encoder) segmentGrant(g *engine.SegmentGrant) *peerpb.SegmentGrant {
	return &peerpb.SegmentGrant{Ref: e.itemRef(&g.Ref), Group: uint32(g.Group), Seg: e.slotRef(&g.Seg), Offset: g.Offset, Bytes: g.Bytes}
}

func (e *encoder) segmentAck(a *engine.SegmentAck) *peerpb.SegmentAck {
	return &peerpb.SegmentAck{Group: uint32(a.Group), Seg: e.slotRef(&a.Seg), Crc: a.CRC, Code: uint32(a.Code), Detail: clip(a.Detail)}
}

func (e *encoder) recordAck(a *engine.RecordAck) *peerpb.RecordAck {
	return &peerpb.RecordAck{Ref: e.itemRef(&a.Ref), Offset: a.Offset, Bytes: a.Bytes, Code: uint32(a.Code), Detail: clip(a.Detail)}
}

func (e *encoder) gid(g verbs.GID) []byte { return append([]byte(nil), g[:]...) }

func (e *encoder) meta(field string, b []byte) []byte {
	if len(b) > engine.MaxMetaBytes {
		e.fail("%s has %d bytes, at most %d fit", field, len(b), engine.MaxMetaBytes)
	}
	return b
}

func (e *encoder) name(field, s string) string {
	if len(s) > maxNameBytes || !utf8.ValidString(s) {
		e.fail("%s %.80q is not UTF-8 of at most %d bytes", field, s, maxNameBytes)
	}
	return s
}

// list encodes the entries of a repeated field.
func list[E, P any](e *encoder, field string, in []E, limit int, convert func(*E) *P) []*P {
	if len(in) > limit {
		e.fail("%s has %d entries, at most %d fit in one message", field, len(in), limit)
		return nil
	}
	out := make([]*P, len(in))
	for i := range in {
		out[i] = convert(&in[i])
	}
	return out
}

// clip makes text for people fit: a path in it may be no UTF-8, which proto3
// cannot carry, and a long error is of use even when it is cut.
func clip(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= maxDetailBytes {
		return s
	}
	s = s[:maxDetailBytes]
	for len(s) > 0 {
		if r, n := utf8.DecodeLastRuneInString(s); r != utf8.RuneError || n > 1 {
			break
		}
		s = s[:len(s)-1]
	}
	return s
}
