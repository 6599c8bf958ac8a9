package job

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mover/reason"
)

func testGroup() *GroupManifest {
	return &GroupManifest{
		Job: ID{1, 2}, Group: 3, Attempt: 4, Owner: "a/t", SourceNode: "a", SourceRoot: "data", Root: "in",
		Base: []byte("d"), Overwrite: OverwriteIfDifferent, Compare: CompareCRC, Durable: true, Final: true,
		Preserve: []string{PreserveMode, PreserveXattrs},
		Entries: []GroupEntry{
			{Kind: EntryDir, Path: []byte("a"), Mode: 0o755, MtimeNS: -1},
			{Kind: EntryFile, Path: []byte("a/x\xff"), Size: MaxGroupBytes, Mode: 0o640, MtimeNS: 1 << 60, UID: 5, HasCRC: true, CRC32C: 7,
				Xattrs: []Xattr{{"user.a", []byte("v")}}},
			{Kind: EntrySymlink, Path: []byte("l"), Target: []byte("/etc/passwd")},
			{Kind: EntryHardlink, Path: []byte("h"), Target: []byte("a/x\xff")},
		},
	}
}

func TestGroupSurvives(t *testing.T) {
	g := testGroup()
	data, err := g.Append(nil)
	if err != nil || !IsGroup(data) {
		t.Fatal(err)
	}
	back, err := DecodeGroup(data)
	if err != nil || !cmp.Equal(g, back) {
		t.Fatalf("%v\n%s", err, cmp.Diff(g, back))
	}
	if g.Bytes() != MaxGroupBytes || !g.Preserves(PreserveMode) || g.Preserves(PreserveOwner) {
		t.Error("bytes or preserves")
	}
	for n := range data {
		if _, err := DecodeGroup(data[:n]); err == nil {
			t.Fatalf("%d bytes of %d were read", n, len(data))
		}
	}
	if _, err := DecodeGroup(append(data, 0)); err == nil {
		t.Error("a tail was read")
	}
	data[0] = groupVersion + 1
	if _, err := DecodeGroup(data); !errors.Is(err, ErrManifestVersion) {
		t.Error(err)
	}
	m, _ := testManifest().Encode()
	if IsGroup(m) {
		t.Error("a manifest is taken for a group")
	}
}

func TestGroupRefused(t *testing.T) {
	for name, change := range map[string]func(*GroupManifest){
		"job": func(g *GroupManifest) { g.Job = ID{} }, "attempt": func(g *GroupManifest) { g.Attempt = 0 },
		"owner": func(g *GroupManifest) { g.Owner = "x" }, "root": func(g *GroupManifest) { g.Root = ".." },
		"base": func(g *GroupManifest) { g.Base = []byte("a/..") }, "overwrite": func(g *GroupManifest) { g.Overwrite = "" },
		"none": func(g *GroupManifest) { g.Entries = nil }, "many": func(g *GroupManifest) { g.Entries = make([]GroupEntry, 513) },
		"order":    func(g *GroupManifest) { g.Preserve = []string{PreserveXattrs, PreserveMode} },
		"absolute": func(g *GroupManifest) { g.Entries[1].Path = []byte("/x") },
		"dot dot":  func(g *GroupManifest) { g.Entries[1].Path = []byte("a/../../x") },
		"dot":      func(g *GroupManifest) { g.Entries[1].Path = []byte("./x") },
		"slash":    func(g *GroupManifest) { g.Entries[1].Path = []byte("x/") },
		"NUL":      func(g *GroupManifest) { g.Entries[1].Path = []byte("x\x00") },
		"long":     func(g *GroupManifest) { g.Entries[1].Path = bytes.Repeat([]byte("x"), 4094) },
		"set-uid":  func(g *GroupManifest) { g.Entries[1].Mode = 0o4755 },
		"size":     func(g *GroupManifest) { g.Entries[1].Size = -1 },
		"sum": func(g *GroupManifest) {
			g.Entries = append(g.Entries, GroupEntry{Kind: EntryFile, Path: []byte("y"), Size: 1})
		},
		"dir size": func(g *GroupManifest) { g.Entries[0].Size = 1 },
		"target":   func(g *GroupManifest) { g.Entries[2].Target = nil },
		"hardlink": func(g *GroupManifest) { g.Entries[3].Target = []byte("../x") },
		"xattr":    func(g *GroupManifest) { g.Entries[1].Xattrs[0].Name = "security.x" },
		"kind":     func(g *GroupManifest) { g.Entries[0].Kind = 9 },
		"large":    func(g *GroupManifest) { g.Entries = largeEntries() },
	} {
		g := testGroup()
		change(g)
		var fe *FieldError
		if _, err := g.Append(nil); !errors.As(err, &fe) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func largeEntries() (out []GroupEntry) {
	for range 20 {
		out = append(out, GroupEntry{Kind: EntryFile, Path: bytes.Repeat([]byte("x"), 4000)})
	}
	return out
}

func TestGroupDone(t *testing.T) {
	d := &GroupDone{Durable: true, Verified: true, Exceptions: []GroupException{
		{Index: 1, Outcome: EntrySkipped}, {Index: 5, Outcome: EntryFailed, Code: reason.DestExists, Detail: strings.Repeat("ä", 90)}}}
	data, err := d.Encode()
	if err != nil {
		t.Fatal(err)
	}
	back, err := DecodeGroupDone(data, 6)
	if err != nil || len(back.Exceptions) != 2 || back.Exceptions[1].Detail != strings.Repeat("ä", 48) || back.Exceptions[1].Code != reason.DestExists || !back.Verified {
		t.Errorf("%+v, %v", back, err)
	}
	if _, err := DecodeGroupDone(data, 5); err == nil {
		t.Error("an index behind the last entry was read")
	}
	for _, bad := range []*GroupDone{
		{Exceptions: []GroupException{{Outcome: 3}}}, {Exceptions: []GroupException{{Outcome: EntryFailed}}},
		{Exceptions: []GroupException{{Index: 1, Outcome: EntrySkipped}, {Index: 1, Outcome: EntrySkipped}}},
	} {
		if _, err := bad.Encode(); err == nil {
			t.Errorf("%+v", bad)
		}
	}
}

// FuzzGroup: what is read is valid and has one encoding.
func FuzzGroup(f *testing.F) {
	good, err := testGroup().Append(nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte{1, 3, 1, 0, 2, 1, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		if g, err := DecodeGroup(data); err == nil {
			for _, e := range g.Entries {
				if p := "/" + string(e.Path) + "/"; strings.Contains(p, "/../") || strings.Contains(p, "//") || e.Mode > 0o777 || e.Size < 0 {
					t.Fatalf("accepted %+v", e)
				}
			}
			if again, err := g.Append(nil); err != nil || !bytes.Equal(again, data) {
				t.Fatalf("another encoding: %v\n%x\n%x", err, data, again)
			}
		}
		if d, err := DecodeGroupDone(data, MaxGroupEntries); err == nil {
			if _, err := d.Encode(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func BenchmarkGroup(b *testing.B) {
	g := testGroup()
	g.Entries = nil
	for range MaxGroupEntries {
		g.Entries = append(g.Entries, GroupEntry{Kind: EntryFile, Path: []byte("some/directory/file-000001.bin"), Size: 4096, Mode: 0o644, MtimeNS: 1 << 60})
	}
	buf, err := g.Append(nil)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if buf, err = g.Append(buf[:0]); err != nil {
			b.Fatal(err)
		}
		if _, err := DecodeGroup(buf); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*MaxGroupEntries), "ns/entry")
}
