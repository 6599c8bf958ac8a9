package peer

import (
	"fmt"
	"math"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"mover/engine"
	"mover/peer/peerpb"
	"mover/verbs"
)

// fromFrame makes the message of a frame from the peer, or a *ViolationError.
// The message shares byte slices with f, which is not used again. What it
// checks is form: sizes, ranges and presence. Whether a lane or slot exists,
// whether offset and length fit an item, is engine's to check.
func fromFrame(f *peerpb.Frame) (engine.Message, error) {
	d := decoder{kind: "frame"}
	d.known("", f)
	m := d.message(f)
	if d.err != nil {
		return nil, d.err
	}
	return m, nil
}

// decoder keeps the first violation; everything after it runs on but counts
// for nothing.
type decoder struct {
	kind string
	err  *ViolationError
}

func (d *decoder) fail(field, format string, args ...any) {
	if d.err == nil {
		d.err = &ViolationError{Frame: d.kind, Field: field, Detail: fmt.Sprintf(format, args...)}
	}
}

// known refuses fields that this version does not have.
func (d *decoder) known(field string, m proto.Message) {
	if n := len(m.ProtoReflect().GetUnknown()); n > 0 {
		d.fail(field, "%d bytes of unknown fields", n)
	}
}

func (d *decoder) message(f *peerpb.Frame) engine.Message {
	switch b := f.GetBody().(type) {
	case nil:
		d.fail("", "empty, or not decodable")
	case *peerpb.Frame_Open:
		return d.open(b.Open)
	case *peerpb.Frame_GroupOpen:
		return d.groupOpen(b.GroupOpen)
	case *peerpb.Frame_LaneOpen:
		return &engine.LaneOpen{Lanes: d.lanes("lane_open", b.LaneOpen, b.LaneOpen.GetLanes())}
	case *peerpb.Frame_LaneOpened:
		return &engine.LaneOpened{Lanes: d.lanes("lane_opened", b.LaneOpened, b.LaneOpened.GetLanes())}
	case *peerpb.Frame_LaneReady:
		d.begin("lane_ready", b.LaneReady)
		return &engine.LaneReady{Lanes: entries(d, "lanes", b.LaneReady.GetLanes(), engine.MaxBatch, d.laneEntry)}
	case *peerpb.Frame_LaneDown:
		x := b.LaneDown
		d.begin("lane_down", x)
		return &engine.LaneDown{Lane: d.laneRef("lane", x.GetLane()), Cause: d.text("cause", x.GetCause()),
			Slots:    entries(d, "slots", x.GetSlots(), engine.MaxBatch, d.slotEntry),
			Segments: entries(d, "segments", x.GetSegments(), engine.MaxBatch, d.slotEntry)}
	case *peerpb.Frame_LaneDownAnswer:
		x := b.LaneDownAnswer
		d.begin("lane_down_answer", x)
		return &engine.LaneDownAnswer{Lane: d.laneRef("lane", x.GetLane()),
			Slots:    entries(d, "slots", x.GetSlots(), engine.MaxBatch, d.slotEntry),
			Segments: entries(d, "segments", x.GetSegments(), engine.MaxBatch, d.slotEntry)}
	case *peerpb.Frame_Ping:
		d.begin("ping", b.Ping)
		return &engine.Ping{Seq: b.Ping.GetSeq()}
	case *peerpb.Frame_Pong:
		d.begin("pong", b.Pong)
		return &engine.Pong{Seq: b.Pong.GetSeq()}
	case *peerpb.Frame_Bye:
		d.begin("bye", b.Bye)
		return &engine.Bye{Code: d.u16("code", b.Bye.GetCode()), Detail: d.text("detail", b.Bye.GetDetail())}
	default:
		return d.itemMessage(f)
	}
	return nil
}

func (d *decoder) itemMessage(f *peerpb.Frame) engine.Message {
	switch b := f.GetBody().(type) {
	case *peerpb.Frame_ItemOffer:
		return d.itemOffer(b.ItemOffer)
	case *peerpb.Frame_ItemAnswer:
		x := b.ItemAnswer
		d.begin("item_answer", x)
		return &engine.ItemAnswer{Ref: d.itemRef("ref", x.GetRef()), Code: d.u16("code", x.GetCode()),
			Detail:  d.text("detail", x.GetDetail()),
			Regions: entries(d, "regions", x.GetRegions(), engine.MaxBatch, d.memoryRegion)}
	case *peerpb.Frame_SegmentGrants:
		d.begin("segment_grants", b.SegmentGrants)
		return &engine.SegmentGrants{Grants: entries(d, "grants", b.SegmentGrants.GetGrants(), engine.MaxBatch, d.segmentGrant)}
	case *peerpb.Frame_SegmentAcks:
		d.begin("segment_acks", b.SegmentAcks)
		return &engine.SegmentAcks{Acks: entries(d, "acks", b.SegmentAcks.GetAcks(), engine.MaxBatch, d.segmentAck)}
	case *peerpb.Frame_RecordAcks:
		d.begin("record_acks", b.RecordAcks)
		return &engine.RecordAcks{Acks: entries(d, "acks", b.RecordAcks.GetAcks(), engine.MaxBatch, d.recordAck)}
	case *peerpb.Frame_ItemCommit:
		x := b.ItemCommit
		d.begin("item_commit", x)
		return &engine.ItemCommit{Ref: d.itemRef("ref", x.GetRef()), CRC: x.GetCrc()}
	case *peerpb.Frame_ItemDone:
		x := b.ItemDone
		d.begin("item_done", x)
		return &engine.ItemDone{Ref: d.itemRef("ref", x.GetRef()), Code: d.u16("code", x.GetCode()),
			Detail: d.text("detail", x.GetDetail()), Meta: d.meta(x.GetMeta())}
	case *peerpb.Frame_ItemAbort:
		x := b.ItemAbort
		d.begin("item_abort", x)
		return &engine.ItemAbort{Ref: d.itemRef("ref", x.GetRef()), Code: d.u16("code", x.GetCode()), Detail: d.text("detail", x.GetDetail())}
	}
	// Hello, Welcome, Link and the like belong to the handshake.
	d.fail("", "%T has no place within a session", f.GetBody())
	return nil
}

// begin names the frame in violations and checks its own fields.
func (d *decoder) begin(kind string, m proto.Message) {
	d.kind = kind
	d.known("", m)
}

func (d *decoder) open(x *peerpb.Open) engine.Message {
	d.begin("open", x)
	return &engine.Open{
		Ports: entries(d, "ports", x.GetPorts(), engine.MaxPorts, d.portOffer), PayloadBytes: x.GetPayloadBytes(),
		LanesPerRail: d.u16("lanes_per_rail", x.GetLanesPerRail()), LaneDepth: d.u16("lane_depth", x.GetLaneDepth()),
		SegmentBytes: x.GetSegmentBytes(),
	}
}

func (d *decoder) portOffer(x *peerpb.PortOffer) engine.PortOffer {
	p := engine.PortOffer{
		Provider: d.name("provider", x.GetProvider()), Device: d.name("device", x.GetDevice()),
		Port: d.u8("port", x.GetPort()), LinkLayer: verbs.LinkLayer(x.GetLinkLayer()), GID: d.gid("gid", x.GetGid()),
		GIDType: verbs.GIDType(x.GetGidType()), LID: d.u16("lid", x.GetLid()), MTU: d.mtu("mtu", x.GetMtu()),
		RateBits: x.GetRateBits(), Down: x.GetDown(), GRHRequired: x.GetGrhRequired(),
	}
	if _, ok := peerpb.LinkLayer_name[int32(x.GetLinkLayer())]; !ok {
		d.fail("link_layer", "unknown value %d", x.GetLinkLayer())
	}
	if _, ok := peerpb.GIDType_name[int32(x.GetGidType())]; !ok {
		d.fail("gid_type", "unknown value %d", x.GetGidType())
	}
	if n := len(x.GetPollers()); n > engine.MaxGroups {
		d.fail("pollers", "%d entries, at most %d are allowed", n, engine.MaxGroups)
		return p
	}
	for _, n := range x.GetPollers() {
		p.Pollers = append(p.Pollers, d.u16("pollers", n))
	}
	return p
}

func (d *decoder) groupOpen(x *peerpb.GroupOpen) engine.Message {
	d.begin("group_open", x)
	if x.GetSlots() > engine.MaxSlots {
		d.fail("slots", "%d slots, at most %d have an index", x.GetSlots(), engine.MaxSlots)
	}
	return &engine.GroupOpen{Group: d.u16("group", x.GetGroup()), Slots: x.GetSlots(), StrideBytes: x.GetStrideBytes(), RegionSlots: x.GetRegionSlots(),
		Regions: entries(d, "regions", x.GetRegions(), engine.MaxBatch, d.region)}
}

func (d *decoder) region(x *peerpb.Region) engine.Region {
	return engine.Region{Rail: d.u16("rail", x.GetRail()), Addr: x.GetAddr(), RKey: x.GetRkey()}
}

func (d *decoder) lanes(kind string, m proto.Message, in []*peerpb.LaneEnd) []engine.LaneEnd {
	d.begin(kind, m)
	return entries(d, "lanes", in, engine.MaxBatch, d.laneEnd)
}

func (d *decoder) laneEnd(x *peerpb.LaneEnd) engine.LaneEnd {
	if n := len(x.GetConnData()); n > verbs.MaxConnData {
		d.fail("conn_data", "%d bytes, at most %d are allowed", n, verbs.MaxConnData)
	}
	return engine.LaneEnd{Lane: d.u16("lane", x.GetLane()), Epoch: x.GetEpoch(), QPN: d.u24("qpn", x.GetQpn()),
		PSN: d.u24("psn", x.GetPsn()), GID: d.gid("gid", x.GetGid()), LID: d.u16("lid", x.GetLid()),
		MTU: d.mtu("mtu", x.GetMtu()), ConnData: orNil(x.GetConnData())}
}

func (d *decoder) itemOffer(x *peerpb.ItemOffer) engine.Message {
	d.begin("item_offer", x)
	kind := x.GetKind()
	if _, ok := peerpb.ItemKind_name[int32(kind)]; !ok || kind == peerpb.ItemKind_ITEM_UNSPECIFIED {
		d.fail("kind", "unknown value %d", kind)
	}
	return &engine.ItemOffer{Ref: d.itemRef("ref", x.GetRef()), Kind: engine.ItemKind(kind), Bytes: d.bytes("bytes", x.GetBytes()),
		Verify: x.GetVerify(), Meta: d.meta(x.GetMeta())}
}

func (d *decoder) memoryRegion(x *peerpb.MemoryRegion) engine.MemoryRegion {
	return engine.MemoryRegion{Rail: d.u16("rail", x.GetRail()), Offset: d.bytes("offset", x.GetOffset()),
		Bytes: d.bytes("bytes", x.GetBytes()), Addr: x.GetAddr(), RKey: x.GetRkey()}
}

func (d *decoder) segmentGrant(x *peerpb.SegmentGrant) engine.SegmentGrant {
	return engine.SegmentGrant{Ref: d.itemRef("ref", x.GetRef()), Group: d.u16("group", x.GetGroup()),
		Seg: d.slotRef("seg", x.GetSeg()), Offset: d.bytes("offset", x.GetOffset()), Bytes: x.GetBytes()}
}

func (d *decoder) segmentAck(x *peerpb.SegmentAck) engine.SegmentAck {
	return engine.SegmentAck{Group: d.u16("group", x.GetGroup()), Seg: d.slotRef("seg", x.GetSeg()), CRC: x.GetCrc(),
		Code: d.u16("code", x.GetCode()), Detail: d.text("detail", x.GetDetail())}
}

func (d *decoder) recordAck(x *peerpb.RecordAck) engine.RecordAck {
	return engine.RecordAck{Ref: d.itemRef("ref", x.GetRef()), Offset: d.bytes("offset", x.GetOffset()),
		Bytes: x.GetBytes(), Code: d.u16("code", x.GetCode()), Detail: d.text("detail", x.GetDetail())}
}

// The references are messages of their own, so unlike a number they can be
// missing; a missing one must not become item 0 or lane 0.

func (d *decoder) laneRef(field string, x *peerpb.LaneRef) engine.LaneRef {
	d.present(field, x == nil, x)
	return engine.LaneRef{Lane: d.u16(field, x.GetLane()), Epoch: x.GetEpoch()}
}

func (d *decoder) laneEntry(x *peerpb.LaneRef) engine.LaneRef { return d.laneRef("", x) }

func (d *decoder) slotEntry(x *peerpb.SlotRef) engine.SlotRef { return d.slotRef("", x) }

func (d *decoder) slotRef(field string, x *peerpb.SlotRef) engine.SlotRef {
	d.present(field, x == nil, x)
	return engine.SlotRef{Index: x.GetIndex(), Generation: x.GetGeneration()}
}

func (d *decoder) itemRef(field string, x *peerpb.ItemRef) engine.ItemRef {
	d.present(field, x == nil, x)
	return engine.ItemRef{Item: x.GetItem(), Attempt: x.GetAttempt()}
}

func (d *decoder) present(field string, missing bool, m proto.Message) {
	if missing {
		d.fail(field, "missing")
		return
	}
	d.known(field, m)
}

// entries decodes a repeated field of messages. Only a violation pays for the
// full name of its field.
func entries[E any, P proto.Message](d *decoder, field string, in []P, limit int, convert func(P) E) []E {
	if len(in) > limit {
		d.fail(field, "%d entries, at most %d are allowed", len(in), limit)
	}
	if len(in) == 0 || d.err != nil {
		return nil
	}
	out := make([]E, len(in))
	for i, x := range in {
		d.known("", x)
		out[i] = convert(x)
		if d.err != nil {
			d.err.Field = strings.TrimSuffix(fmt.Sprintf("%s[%d].%s", field, i, d.err.Field), ".")
			return nil
		}
	}
	return out
}

func (d *decoder) u8(field string, n uint32) uint8 {
	if n > math.MaxUint8 {
		d.fail(field, "%d does not fit 8 bits", n)
	}
	return uint8(n)
}

func (d *decoder) u16(field string, n uint32) uint16 {
	if n > math.MaxUint16 {
		d.fail(field, "%d does not fit 16 bits", n)
	}
	return uint16(n)
}

func (d *decoder) u24(field string, n uint32) uint32 {
	if n >= 1<<24 {
		d.fail(field, "%d does not fit 24 bits", n)
	}
	return n
}

// bytes is a count of bytes or an offset.
func (d *decoder) bytes(field string, n int64) int64 {
	if n < 0 {
		d.fail(field, "negative: %d", n)
	}
	return n
}

func (d *decoder) gid(field string, b []byte) (g verbs.GID) {
	if len(b) != len(g) {
		d.fail(field, "%d bytes, a GID has %d", len(b), len(g))
	}
	copy(g[:], b)
	return g
}

func (d *decoder) mtu(field string, m peerpb.MTU) verbs.MTU {
	// Compared before the conversion, which would cut 257 to 1.
	if m < peerpb.MTU_MTU_256 || m > peerpb.MTU_MTU_4096 {
		d.fail(field, "unknown value %d", m)
	}
	return verbs.MTU(m)
}

func (d *decoder) meta(b []byte) []byte {
	if len(b) > engine.MaxMetaBytes {
		d.fail("meta", "%d bytes, at most %d are allowed", len(b), engine.MaxMetaBytes)
	}
	return orNil(b)
}

func (d *decoder) text(field, s string) string {
	if len(s) > maxDetailBytes || !utf8.ValidString(s) {
		d.fail(field, "not UTF-8 of at most %d bytes", maxDetailBytes)
	}
	return s
}

func (d *decoder) name(field, s string) string {
	if len(s) > maxNameBytes || !utf8.ValidString(s) {
		d.fail(field, "not UTF-8 of at most %d bytes", maxNameBytes)
	}
	return s
}

// orNil gives an absent byte field one form.
func orNil(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	return b
}
