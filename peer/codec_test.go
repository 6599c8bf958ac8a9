package peer

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"mover/engine"
	"mover/peer/peerpb"
	"mover/verbs"
)

// prototypes has one of every message. TestEveryMessageIsTested keeps it
// complete.
var prototypes = []engine.Message{
	&engine.Open{}, &engine.GroupOpen{}, &engine.LaneOpen{}, &engine.LaneOpened{}, &engine.LaneReady{}, &engine.LaneDown{},
	&engine.LaneDownAnswer{}, &engine.Ping{}, &engine.Pong{}, &engine.Bye{}, &engine.ItemOffer{}, &engine.ItemAnswer{},
	&engine.SegmentGrants{}, &engine.SegmentAcks{}, &engine.RecordAcks{}, &engine.ItemCommit{}, &engine.ItemDone{}, &engine.ItemAbort{},
}

// handshakeFrames are the bodies of Frame that are no engine message.
var handshakeFrames = map[string]bool{"hello": true, "welcome": true, "refusal": true, "link": true, "linked": true, "closing": true}

// The messages of package engine are found in its source, so that one added
// there without a wire form fails here.
func TestEveryMessageIsTested(t *testing.T) {
	have := map[string]bool{}
	for _, m := range prototypes {
		have[reflect.TypeOf(m).Elem().Name()] = true
	}
	files, err := filepath.Glob("../engine/*.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("engine's source: %v, %v", files, err)
	}
	found := 0
	for _, file := range files {
		src, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(src), "isMessage()") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, src, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Name.Name != "isMessage" || fn.Recv == nil {
				continue
			}
			star, ok := fn.Recv.List[0].Type.(*ast.StarExpr)
			if !ok {
				t.Errorf("%s: a message that is not a pointer", file)
				continue
			}
			found++
			if name := star.X.(*ast.Ident).Name; !have[name] {
				t.Errorf("engine.%s has no wire form: add it to peer.proto, encode.go, decode.go and prototypes", name)
			}
		}
	}
	if found != len(prototypes) {
		t.Errorf("found %d messages in engine, prototypes has %d", found, len(prototypes))
	}
	bodies := (&peerpb.Frame{}).ProtoReflect().Descriptor().Fields()
	if want := len(prototypes) + len(handshakeFrames); bodies.Len() != want {
		t.Errorf("Frame has %d bodies, want %d", bodies.Len(), want)
	}
}

// arbitrary fills v with values that are legal on the wire. Every field gets a
// value other than zero now and then, so a field the codec forgets shows up.
func arbitrary(t *rapid.T, v reflect.Value, name string) {
	switch v.Interface().(type) {
	case verbs.MTU:
		v.SetUint(rapid.Uint64Range(uint64(verbs.MTU256), uint64(verbs.MTU4096)).Draw(t, name))
		return
	case verbs.LinkLayer:
		v.SetUint(rapid.Uint64Range(0, uint64(verbs.LinkEthernet)).Draw(t, name))
		return
	case verbs.GIDType:
		v.SetUint(rapid.Uint64Range(0, uint64(verbs.GIDSim)).Draw(t, name))
		return
	case engine.ItemKind:
		v.SetUint(rapid.Uint64Range(uint64(engine.Staged), uint64(engine.Direct)).Draw(t, name))
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			arbitrary(t, v.Field(i), v.Type().Field(i).Name)
		}
	case reflect.Slice:
		limit := map[string]int{"Meta": 300, "ConnData": verbs.MaxConnData}[name]
		if limit == 0 {
			limit = 5
		}
		n := rapid.IntRange(0, limit).Draw(t, name+" length")
		if n == 0 {
			return // nil: the codec has one form for nothing
		}
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range n {
			arbitrary(t, v.Index(i), "")
		}
	case reflect.Array:
		for i := range v.Len() {
			arbitrary(t, v.Index(i), "")
		}
	case reflect.String:
		v.SetString(rapid.StringN(0, 12, maxNameBytes).Draw(t, name))
	case reflect.Bool:
		v.SetBool(rapid.Bool().Draw(t, name))
	case reflect.Int64:
		v.SetInt(rapid.Int64Range(0, math.MaxInt64).Draw(t, name))
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		limit := uint64(math.MaxUint64) >> (64 - v.Type().Bits())
		switch name {
		case "QPN", "PSN":
			limit = 1<<24 - 1
		case "Slots":
			limit = engine.MaxSlots
		}
		v.SetUint(rapid.Uint64Range(0, limit).Draw(t, name))
	default:
		t.Fatalf("%s: no rule for a %v", name, v.Type())
	}
}

func drawMessage(t *rapid.T) engine.Message {
	m := reflect.New(reflect.TypeOf(rapid.SampledFrom(prototypes).Draw(t, "type")).Elem())
	arbitrary(t, m.Elem(), "")
	return m.Interface().(engine.Message)
}

func TestRoundTrip(t *testing.T) {
	seen := map[reflect.Type]map[string]bool{} // fields that were not zero
	rapid.Check(t, func(t *rapid.T) {
		m := drawMessage(t)
		typ := reflect.TypeOf(m).Elem()
		if seen[typ] == nil {
			seen[typ] = map[string]bool{}
		}
		for i := range typ.NumField() {
			if !reflect.ValueOf(m).Elem().Field(i).IsZero() {
				seen[typ][typ.Field(i).Name] = true
			}
		}
		f, err := toFrame(m)
		if err != nil {
			t.Fatal(err)
		}
		b, err := proto.Marshal(f)
		if err != nil {
			t.Fatal(err)
		}
		var g peerpb.Frame
		if err := proto.Unmarshal(b, &g); err != nil {
			t.Fatal(err)
		}
		got, err := fromFrame(&g)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(m, got); diff != "" {
			t.Fatalf("lost on the way (-sent +received):\n%s", diff)
		}
	})
	// Every message and field took part; rapid is random, but 100 rounds over
	// 18 types may leave one out, so those are made up for.
	for _, p := range prototypes {
		typ := reflect.TypeOf(p).Elem()
		m := reflect.New(typ)
		fill(m.Elem())
		f, err := toFrame(m.Interface().(engine.Message))
		if err != nil {
			t.Fatal(err)
		}
		got, err := fromFrame(f)
		if err != nil {
			t.Fatalf("%v: %v", typ, err)
		}
		if diff := cmp.Diff(m.Interface(), got); diff != "" {
			t.Errorf("%v: lost on the way:\n%s", typ, diff)
		}
	}
}

// fill sets every field to something that is not zero.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i))
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fill(v.Index(0))
		fill(v.Index(1))
	case reflect.Array:
		for i := range v.Len() {
			fill(v.Index(i))
		}
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int64:
		v.SetInt(7)
	default:
		v.SetUint(2)
	}
}

// The numbers of enums are the protocol's; verbs and engine may not drift.
func TestEnumsAgree(t *testing.T) {
	for _, tt := range []struct {
		wire int32
		own  int
	}{
		{int32(peerpb.LinkLayer_LINK_UNSPECIFIED), int(verbs.LinkUnspecified)}, {int32(peerpb.LinkLayer_LINK_INFINIBAND), int(verbs.LinkInfiniBand)},
		{int32(peerpb.LinkLayer_LINK_ETHERNET), int(verbs.LinkEthernet)},
		{int32(peerpb.GIDType_GID_UNKNOWN), int(verbs.GIDUnknown)}, {int32(peerpb.GIDType_GID_INFINIBAND), int(verbs.GIDInfiniBand)},
		{int32(peerpb.GIDType_GID_ROCE_V1), int(verbs.GIDRoCEv1)}, {int32(peerpb.GIDType_GID_ROCE_V2), int(verbs.GIDRoCEv2)},
		{int32(peerpb.GIDType_GID_SOFT), int(verbs.GIDSoft)}, {int32(peerpb.GIDType_GID_SIM), int(verbs.GIDSim)},
		{int32(peerpb.MTU_MTU_256), int(verbs.MTU256)}, {int32(peerpb.MTU_MTU_512), int(verbs.MTU512)}, {int32(peerpb.MTU_MTU_1024), int(verbs.MTU1024)},
		{int32(peerpb.MTU_MTU_2048), int(verbs.MTU2048)}, {int32(peerpb.MTU_MTU_4096), int(verbs.MTU4096)},
		{int32(peerpb.ItemKind_ITEM_STAGED), int(engine.Staged)}, {int32(peerpb.ItemKind_ITEM_DIRECT), int(engine.Direct)},
	} {
		if int(tt.wire) != tt.own {
			t.Errorf("wire %d is %d in verbs or engine", tt.wire, tt.own)
		}
	}
}

func gid() []byte { return make([]byte, 16) }

func frameOf(t *testing.T, m engine.Message) *peerpb.Frame {
	t.Helper()
	f, err := toFrame(m)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func laneOpenFrame(change func(*peerpb.LaneEnd)) *peerpb.Frame {
	e := &peerpb.LaneEnd{Gid: gid(), Mtu: peerpb.MTU_MTU_1024}
	change(e)
	return &peerpb.Frame{Body: &peerpb.Frame_LaneOpen{LaneOpen: &peerpb.LaneOpen{Lanes: []*peerpb.LaneEnd{{Gid: gid(), Mtu: peerpb.MTU_MTU_256}, e}}}}
}

func portFrame(change func(*peerpb.PortOffer)) *peerpb.Frame {
	p := &peerpb.PortOffer{Gid: gid(), Mtu: peerpb.MTU_MTU_1024}
	change(p)
	return &peerpb.Frame{Body: &peerpb.Frame_Open{Open: &peerpb.Open{Ports: []*peerpb.PortOffer{p}}}}
}

func offerFrame(change func(*peerpb.ItemOffer)) *peerpb.Frame {
	o := &peerpb.ItemOffer{Ref: &peerpb.ItemRef{}, Kind: peerpb.ItemKind_ITEM_STAGED}
	change(o)
	return &peerpb.Frame{Body: &peerpb.Frame_ItemOffer{ItemOffer: o}}
}

func acksFrame(change func(*peerpb.RecordAcks)) *peerpb.Frame {
	a := &peerpb.RecordAcks{Acks: []*peerpb.RecordAck{{Ref: &peerpb.ItemRef{}}}}
	change(a)
	return &peerpb.Frame{Body: &peerpb.Frame_RecordAcks{RecordAcks: a}}
}

func TestViolations(t *testing.T) {
	unknown := []byte{0xfa, 0x3f, 1, 'x'} // field 1023
	withUnknown := func(m proto.Message) { m.ProtoReflect().SetUnknown(unknown) }
	for _, tt := range []struct {
		name  string
		frame *peerpb.Frame
		want  string // Frame.Field of the violation
	}{
		{"nil", nil, "frame"},
		{"empty", &peerpb.Frame{}, "frame"},
		{"unknown body", func() *peerpb.Frame { f := &peerpb.Frame{}; withUnknown(f); return f }(), "frame"},
		{"unknown beside body", func() *peerpb.Frame { f := frameOf(t, ping(1)); withUnknown(f); return f }(), "frame"},
		{"unknown in body", func() *peerpb.Frame { f := frameOf(t, ping(1)); withUnknown(f.GetPing()); return f }(), "ping"},
		{"unknown in entry", acksFrame(func(a *peerpb.RecordAcks) { withUnknown(a.Acks[0]) }), "record_acks.acks[0]"},
		{"unknown in reference", acksFrame(func(a *peerpb.RecordAcks) { withUnknown(a.Acks[0].Ref) }), "record_acks.acks[0].ref"},
		{"hello", &peerpb.Frame{Body: &peerpb.Frame_Hello{Hello: &peerpb.Hello{}}}, "frame"},
		{"closing", &peerpb.Frame{Body: &peerpb.Frame_Closing{Closing: &peerpb.Closing{}}}, "frame"},
		{"linked", &peerpb.Frame{Body: &peerpb.Frame_Linked{}}, "frame"},
		{"no ref", offerFrame(func(o *peerpb.ItemOffer) { o.Ref = nil }), "item_offer.ref"},
		{"kind 0", offerFrame(func(o *peerpb.ItemOffer) { o.Kind = 0 }), "item_offer.kind"},
		{"kind 3", offerFrame(func(o *peerpb.ItemOffer) { o.Kind = 3 }), "item_offer.kind"},
		{"kind 257", offerFrame(func(o *peerpb.ItemOffer) { o.Kind = 257 }), "item_offer.kind"},
		{"negative size", offerFrame(func(o *peerpb.ItemOffer) { o.Bytes = -1 }), "item_offer.bytes"},
		{"meta", offerFrame(func(o *peerpb.ItemOffer) { o.Meta = make([]byte, engine.MaxMetaBytes+1) }), "item_offer.meta"},
		{"batch", acksFrame(func(a *peerpb.RecordAcks) { a.Acks = make([]*peerpb.RecordAck, engine.MaxBatch+1) }), "record_acks.acks"},
		{"nil entry", acksFrame(func(a *peerpb.RecordAcks) { a.Acks = append(a.Acks, nil) }), "record_acks.acks[1].ref"},
		{"ack code", acksFrame(func(a *peerpb.RecordAcks) { a.Acks[0].Code = 1 << 16 }), "record_acks.acks[0].code"},
		{"negative offset", acksFrame(func(a *peerpb.RecordAcks) { a.Acks[0].Offset = math.MinInt64 }), "record_acks.acks[0].offset"},
		{"long detail", acksFrame(func(a *peerpb.RecordAcks) { a.Acks[0].Detail = strings.Repeat("x", maxDetailBytes+1) }), "record_acks.acks[0].detail"},
		{"gid 15", laneOpenFrame(func(e *peerpb.LaneEnd) { e.Gid = e.Gid[:15] }), "lane_open.lanes[1].gid"},
		{"gid 17", laneOpenFrame(func(e *peerpb.LaneEnd) { e.Gid = make([]byte, 17) }), "lane_open.lanes[1].gid"},
		{"no gid", laneOpenFrame(func(e *peerpb.LaneEnd) { e.Gid = nil }), "lane_open.lanes[1].gid"},
		{"qpn", laneOpenFrame(func(e *peerpb.LaneEnd) { e.Qpn = 1 << 24 }), "lane_open.lanes[1].qpn"},
		{"psn", laneOpenFrame(func(e *peerpb.LaneEnd) { e.Psn = 1 << 24 }), "lane_open.lanes[1].psn"},
		{"mtu 0", laneOpenFrame(func(e *peerpb.LaneEnd) { e.Mtu = 0 }), "lane_open.lanes[1].mtu"},
		{"mtu 6", laneOpenFrame(func(e *peerpb.LaneEnd) { e.Mtu = 6 }), "lane_open.lanes[1].mtu"},
		{"mtu 257", laneOpenFrame(func(e *peerpb.LaneEnd) { e.Mtu = 257 }), "lane_open.lanes[1].mtu"},
		{"mtu -1", laneOpenFrame(func(e *peerpb.LaneEnd) { e.Mtu = -1 }), "lane_open.lanes[1].mtu"},
		{"lane", laneOpenFrame(func(e *peerpb.LaneEnd) { e.Lane = 1 << 16 }), "lane_open.lanes[1].lane"},
		{"conn data", laneOpenFrame(func(e *peerpb.LaneEnd) { e.ConnData = make([]byte, verbs.MaxConnData+1) }), "lane_open.lanes[1].conn_data"},
		{"link layer", portFrame(func(p *peerpb.PortOffer) { p.LinkLayer = 3 }), "open.ports[0].link_layer"},
		{"gid type", portFrame(func(p *peerpb.PortOffer) { p.GidType = 256 }), "open.ports[0].gid_type"},
		{"port", portFrame(func(p *peerpb.PortOffer) { p.Port = 256 }), "open.ports[0].port"},
		{"device", portFrame(func(p *peerpb.PortOffer) { p.Device = strings.Repeat("d", maxNameBytes+1) }), "open.ports[0].device"},
		{"pollers", portFrame(func(p *peerpb.PortOffer) { p.Pollers = make([]uint32, engine.MaxGroups+1) }), "open.ports[0].pollers"},
		{"poller", portFrame(func(p *peerpb.PortOffer) { p.Pollers = []uint32{1 << 16} }), "open.ports[0].pollers"},
		{"ports", &peerpb.Frame{Body: &peerpb.Frame_Open{Open: &peerpb.Open{Ports: make([]*peerpb.PortOffer, engine.MaxPorts+1)}}}, "open.ports"},
		{"slots", &peerpb.Frame{Body: &peerpb.Frame_GroupOpen{GroupOpen: &peerpb.GroupOpen{Slots: engine.MaxSlots + 1}}}, "group_open.slots"},
		{"no lane", &peerpb.Frame{Body: &peerpb.Frame_LaneDown{LaneDown: &peerpb.LaneDown{}}}, "lane_down.lane"},
		{"nil slot", &peerpb.Frame{Body: &peerpb.Frame_LaneDown{LaneDown: &peerpb.LaneDown{Lane: &peerpb.LaneRef{}, Slots: []*peerpb.SlotRef{nil}}}}, "lane_down.slots[0]"},
		{"no seg", &peerpb.Frame{Body: &peerpb.Frame_SegmentAcks{SegmentAcks: &peerpb.SegmentAcks{Acks: []*peerpb.SegmentAck{{}}}}}, "segment_acks.acks[0].seg"},
		{"bye code", &peerpb.Frame{Body: &peerpb.Frame_Bye{Bye: &peerpb.Bye{Code: 1 << 16}}}, "bye.code"},
	} {
		m, err := fromFrame(tt.frame)
		var v *ViolationError
		if m != nil || !errors.As(err, &v) {
			t.Errorf("%s: %v, %v", tt.name, m, err)
			continue
		}
		if got := strings.TrimSuffix(v.Frame+"."+v.Field, "."); got != tt.want {
			t.Errorf("%s: %v; want it at %s", tt.name, err, tt.want)
		}
	}
}

func TestMessagesThatCannotBeSent(t *testing.T) {
	for _, m := range []engine.Message{
		nil,
		&engine.RecordAcks{Acks: make([]engine.RecordAck, engine.MaxBatch+1)},
		&engine.LaneOpen{Lanes: make([]engine.LaneEnd, engine.MaxBatch+1)},
		&engine.LaneOpen{Lanes: []engine.LaneEnd{{ConnData: make([]byte, verbs.MaxConnData+1)}}},
		&engine.ItemOffer{Meta: make([]byte, engine.MaxMetaBytes+1)},
		&engine.Open{Ports: make([]engine.PortOffer, engine.MaxPorts+1)},
		&engine.Open{Ports: []engine.PortOffer{{Device: "\xff"}}},
		&engine.Open{Ports: []engine.PortOffer{{Pollers: make([]uint16, engine.MaxGroups+1)}}},
	} {
		if f, err := toFrame(m); !errors.Is(err, ErrMessage) || f != nil {
			t.Errorf("toFrame(%T) = %v, %v", m, f, err)
		}
	}
}

// The largest legal frames must fit gRPC's limit.
func TestLargestFrames(t *testing.T) {
	detail := strings.Repeat("x", maxDetailBytes)
	acks := make([]engine.RecordAck, engine.MaxBatch)
	segs := make([]engine.SegmentAck, engine.MaxBatch)
	ends := make([]engine.LaneEnd, engine.MaxBatch)
	for i := range acks {
		acks[i] = engine.RecordAck{Ref: engine.ItemRef{Item: math.MaxUint64, Attempt: math.MaxUint32}, Offset: math.MaxInt64, Bytes: math.MaxUint32, Code: math.MaxUint16, Detail: detail}
		segs[i] = engine.SegmentAck{Group: math.MaxUint16, Seg: engine.SlotRef{Index: math.MaxUint32, Generation: math.MaxUint32}, CRC: math.MaxUint32, Code: math.MaxUint16, Detail: detail}
		ends[i] = engine.LaneEnd{Lane: math.MaxUint16, Epoch: math.MaxUint32, QPN: 1<<24 - 1, PSN: 1<<24 - 1, LID: math.MaxUint16, MTU: verbs.MTU4096, ConnData: make([]byte, verbs.MaxConnData)}
	}
	for _, m := range []engine.Message{&engine.RecordAcks{Acks: acks}, &engine.SegmentAcks{Acks: segs}, &engine.LaneOpen{Lanes: ends}} {
		if n := proto.Size(frameOf(t, m)); n > maxFrameBytes {
			t.Errorf("a legal %T has %d bytes", m, n)
		}
	}
}

func TestClip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := strings.Repeat(string(rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "text")), rapid.IntRange(0, 60).Draw(t, "times"))
		got := clip(s)
		if len(got) > maxDetailBytes || !utf8.ValidString(got) {
			t.Fatalf("clip made %d bytes, valid %v", len(got), utf8.ValidString(got))
		}
		if utf8.ValidString(s) && (len(s) <= maxDetailBytes && got != s || !strings.HasPrefix(s, got) || len(s) > maxDetailBytes && len(got) < maxDetailBytes-3) {
			t.Fatalf("clip(%q) = %q", s, got)
		}
	})
}

func FuzzFromFrame(f *testing.F) {
	for _, p := range prototypes {
		m := reflect.New(reflect.TypeOf(p).Elem())
		fill(m.Elem())
		frame, err := toFrame(m.Interface().(engine.Message))
		if err != nil {
			f.Fatal(err)
		}
		b, err := proto.Marshal(frame)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
		f.Add(b[:len(b)/2])
	}
	f.Add([]byte{})
	f.Add([]byte{0x82, 0x01, 0x00})
	codec := newFrameCodec()
	f.Fuzz(func(t *testing.T, b []byte) {
		var frame peerpb.Frame
		if err := codec.Unmarshal(bufferOf(b), &frame); err != nil {
			t.Fatal(err)
		}
		m, err := fromFrame(&frame)
		if err != nil {
			var v *ViolationError
			if m != nil || !errors.As(err, &v) {
				t.Fatalf("%v, %v", m, err)
			}
			return
		}
		// What is accepted is in a form that this node itself would send.
		again, err := toFrame(m)
		if err != nil {
			t.Fatalf("accepted %+v, but: %v", m, err)
		}
		same, err := fromFrame(again)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(m, same); diff != "" {
			t.Fatal(diff)
		}
	})
}

func FuzzCheckHello(f *testing.F) {
	b, _ := proto.Marshal(&peerpb.Hello{Version: 1, MinVersion: 1, Node: "a", Instance: gid(), LastSession: gid()})
	f.Add(b)
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		var h peerpb.Hello
		if proto.Unmarshal(b, &h) != nil {
			return
		}
		if err := checkHello(&h); err == nil && len(instanceText(h.GetInstance())) != 32 {
			t.Fatal("accepted a Hello without an instance")
		}
		v := versions{minVersion, Version}
		if n, ok := v.common(versions{h.GetMinVersion(), h.GetVersion()}); ok && (n < minVersion || n > Version || n < h.GetMinVersion() || n > h.GetVersion()) {
			t.Fatalf("agreed on version %d", n)
		}
	})
}
