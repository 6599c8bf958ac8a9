package job

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func testManifest() Manifest {
	return Manifest{
		Version: 1, Job: ID{1, 2, 3}, Item: 0, Attempt: 1, Owner: "a/t", SourceNode: "a", SourceRoot: "data",
		Root: "in", Path: []byte("d/x\xff"), Overwrite: "fail", Durable: true, Preserve: []string{"mode"},
		Mode: 0o640, MtimeNS: -5, Size: 1 << 40,
	}
}

func TestManifestSurvives(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := testManifest()
		m.Item, m.Attempt = rapid.Uint32().Draw(t, "item"), rapid.Uint32Min(1).Draw(t, "attempt")
		m.MtimeNS, m.Size = rapid.Int64().Draw(t, "mtime"), rapid.Int64Min(0).Draw(t, "size")
		m.Path = bytes.Join(rapid.SliceOfN(rapid.SliceOfN(rapid.SampledFrom([]byte("ab\xff\n\"\\ ")), 1, 20), 1, 5).Draw(t, "path"), []byte("/"))
		data, err := m.Encode()
		if err != nil {
			t.Fatal(err)
		}
		back, err := DecodeManifest(data)
		if err != nil || !cmp.Equal(m, back) {
			t.Fatalf("%v\n%s", err, cmp.Diff(m, back))
		}
	})
	m := testManifest()
	if !m.Preserves(PreserveMode) || m.Preserves(PreserveMtime) {
		t.Error("preserves")
	}
	m.Path = bytes.Repeat([]byte("x/"), 2046)
	m.Path = append(m.Path, 'y') // the root and this come to PATH_MAX, as long as it gets
	m.Owner = strings.Repeat("n", 63) + "/" + strings.Repeat("t", 63)
	if data, err := m.Encode(); err != nil || len(data) > MaxManifestBytes {
		t.Errorf("the longest: %d bytes, %v", len(data), err)
	}
}

// TestManifestVersion2: every new field travels, and makes it version 2.
func TestManifestVersion2(t *testing.T) {
	for name, change := range map[string]func(*Manifest){
		"compare":   func(m *Manifest) { m.Compare, m.CRC32C = CompareCRC, "0a1b2c3d" },
		"newer":     func(m *Manifest) { m.Overwrite = OverwriteIfNewer },
		"different": func(m *Manifest) { m.Overwrite = OverwriteIfDifferent },
		"owner":     func(m *Manifest) { m.UID, m.GID, m.Preserve = 1000, 5, []string{PreserveOwner} },
		"xattrs": func(m *Manifest) {
			m.Preserve = []string{PreserveXattrs}
			m.Xattrs = []Xattr{{"user.a", []byte{}}, {"user.b", bytes.Repeat([]byte{0xff}, MaxXattrBytes-12)}}
			m.Path = bytes.Repeat([]byte("x"), 4000) // the longest together fit
		},
		"buffer": func(m *Manifest) {
			m.Root, m.Path, m.Buffer, m.Offset, m.Overwrite = "", nil, "b", 1<<40, OverwriteAlways
		},
		"from a buffer": func(m *Manifest) { m.SourceRoot, m.SourceBuffer = "", "b" },
	} {
		m := testManifest()
		change(&m)
		data, err := m.Encode()
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		m.Version = 2
		if m.Path == nil {
			m.Path = []byte{}
		}
		back, err := DecodeManifest(data)
		if back.Path == nil {
			back.Path = []byte{}
		}
		if err != nil || !cmp.Equal(m, back) {
			t.Errorf("%s: %v\n%s", name, err, cmp.Diff(m, back))
		}
	}
	for name, change := range map[string]func(*Manifest){
		"compare":         func(m *Manifest) { m.Compare = "size" },
		"crc":             func(m *Manifest) { m.CRC32C = "0A1B2C3D" },
		"buffer and root": func(m *Manifest) { m.Buffer, m.Overwrite = "b", OverwriteAlways },
		"buffer's name":   func(m *Manifest) { m.Root, m.Path, m.Buffer, m.Overwrite = "", nil, "b/c", OverwriteAlways },
		"buffer's policy": func(m *Manifest) { m.Root, m.Path, m.Buffer = "", nil, "b" },
		"offset":          func(m *Manifest) { m.Root, m.Path, m.Buffer, m.Overwrite, m.Offset = "", nil, "b", OverwriteAlways, -1 },
		"range": func(m *Manifest) {
			m.Root, m.Path, m.Buffer, m.Overwrite, m.Offset = "", nil, "b", OverwriteAlways, math.MaxInt64
		},
		"offset of a file": func(m *Manifest) { m.Offset = 1 },
		"two sources":      func(m *Manifest) { m.SourceBuffer = "b" },
		"xattr space":      func(m *Manifest) { m.Xattrs = []Xattr{{"security.capability", nil}} },
		"xattr name":       func(m *Manifest) { m.Xattrs = []Xattr{{"user.", nil}} },
		"xattr twice":      func(m *Manifest) { m.Xattrs = []Xattr{{"user.a", nil}, {"user.a", nil}} },
		"xattrs' bytes":    func(m *Manifest) { m.Xattrs = []Xattr{{"user.a", make([]byte, MaxXattrBytes)}} },
		"xattrs' number":   func(m *Manifest) { m.Xattrs = make([]Xattr, MaxXattrs+1) },
	} {
		m := testManifest()
		change(&m)
		if _, err := m.Encode(); err == nil {
			t.Errorf("%s: encoded", name)
		}
		m.Version = 2
		data, _ := json.Marshal(m)
		if _, err := DecodeManifest(data); err == nil {
			t.Errorf("%s: decoded", name)
		}
	}
}

func TestManifestRefused(t *testing.T) {
	for name, change := range map[string]func(*Manifest){
		"job":         func(m *Manifest) { m.Job = ID{} },
		"attempt":     func(m *Manifest) { m.Attempt = 0 },
		"owner":       func(m *Manifest) { m.Owner = "t" },
		"source node": func(m *Manifest) { m.SourceNode = "" },
		"source root": func(m *Manifest) { m.SourceRoot = "a/b" },
		"root":        func(m *Manifest) { m.Root = ".." },
		"no path":     func(m *Manifest) { m.Path = nil },
		"absolute":    func(m *Manifest) { m.Path = []byte("/etc/passwd") },
		"dot dot":     func(m *Manifest) { m.Path = []byte("d/../../x") },
		"dot":         func(m *Manifest) { m.Path = []byte("d/./x") },
		"empty part":  func(m *Manifest) { m.Path = []byte("d//x") },
		"slash":       func(m *Manifest) { m.Path = []byte("d/") },
		"NUL":         func(m *Manifest) { m.Path = []byte("d\x00") },
		"long":        func(m *Manifest) { m.Path = bytes.Repeat([]byte("x"), 4096) },
		"overwrite":   func(m *Manifest) { m.Overwrite = "newest" },
		"preserve":    func(m *Manifest) { m.Preserve = []string{"acl"} },
		"twice":       func(m *Manifest) { m.Preserve = []string{"mode", "mode"} },
		"set-uid":     func(m *Manifest) { m.Mode = 0o4755 },
		"size":        func(m *Manifest) { m.Size = -1 },
	} {
		m := testManifest()
		change(&m)
		var fe *FieldError
		if _, err := m.Encode(); !errors.As(err, &fe) {
			t.Errorf("%s: encoded, %v", name, err)
		}
		data, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := DecodeManifest(data); !errors.As(err, &fe) {
			t.Errorf("%s: decoded, %v", name, err)
		}
	}
	good, _ := testManifest().Encode()
	for name, c := range map[string]struct {
		data string
		want error
	}{
		"later":       {`{"v":3,"news":{}}`, ErrManifestVersion},
		"earlier":     {`{"v":0}`, ErrManifestVersion},
		"2 in 1":      {strings.Replace(string(good), `{`, `{"uid":1,`, 1), nil},
		"no version":  {strings.Replace(string(good), `"v":1,`, ``, 1), nil},
		"unknown":     {strings.Replace(string(good), `{`, `{"x":1,`, 1), nil},
		"other case":  {strings.Replace(string(good), `"size"`, `"SIZE"`, 1), nil},
		"cut":         {string(good[:len(good)-1]), nil},
		"more":        {string(good) + "{}", nil},
		"huge":        {`{"v":1,"owner":"` + strings.Repeat("x", MaxManifestBytes) + `"}`, nil},
		"item":        {strings.Replace(string(good), `"item":0`, `"item":4294967296`, 1), nil},
		"job's id":    {strings.Replace(string(good), `"job":"0`, `"job":"x`, 1), nil},
		"nothing":     {``, nil},
		"size, null":  {strings.Replace(string(good), `1099511627776`, `null`, 1), nil},
		"size, float": {strings.Replace(string(good), `1099511627776`, `1e3`, 1), nil},
	} {
		_, err := DecodeManifest([]byte(c.data))
		var fe *FieldError
		if c.want != nil && !errors.Is(err, c.want) || c.want == nil && !errors.As(err, &fe) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestDoneMeta(t *testing.T) {
	for _, d := range []DoneMeta{
		{Version: 1, Bytes: math.MaxInt64, CRC32C: "0a1b2c3d", Durable: true, Verified: true},
		{Version: 1, Skipped: true}, {Version: 1, Bytes: 5},
	} {
		data, err := d.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if back, err := DecodeDoneMeta(data); err != nil || back != d {
			t.Errorf("%+v, %v, want %+v", back, err, d)
		}
	}
	for _, d := range []DoneMeta{
		{Bytes: -1}, {CRC32C: "x"}, {CRC32C: "0A1B2C3D"}, {Verified: true}, {Skipped: true, Bytes: 1},
	} {
		if _, err := d.Encode(); err == nil {
			t.Errorf("%+v: encoded", d)
		}
		d.Version = 1
		data, _ := json.Marshal(d)
		if _, err := DecodeDoneMeta(data); err == nil {
			t.Errorf("%+v: decoded", d)
		}
	}
	if _, err := DecodeDoneMeta([]byte(`{"v":7}`)); !errors.Is(err, ErrManifestVersion) {
		t.Error(err)
	}
}

func FuzzManifest(f *testing.F) {
	good, err := testManifest().Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(`{"v":2}`))
	f.Add([]byte(`{"v":2,"compare":"mtime","xattrs":[{"name":"user.x","value":"AA=="}]}`))
	f.Add([]byte(`{"v":1,"path":"Li4vLi4="}`))
	f.Add([]byte(`{"v":1,"bytes":5,"crc32c":"0a1b2c3d","verified":true}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if d, err := DecodeDoneMeta(data); err == nil {
			d.Version = 1 // as it is written
			out, err := d.Encode()
			if back, err2 := DecodeDoneMeta(out); err != nil || err2 != nil || back != d {
				t.Fatalf("%+v: %v, %v", d, err, err2)
			}
		}
		m, err := DecodeManifest(data)
		if err != nil {
			return
		}
		parts := strings.Split(string(m.Path), "/")
		if slices.Contains(parts, "") || slices.Contains(parts, "..") || slices.Contains(parts, ".") || m.Size < 0 || m.Mode > 0o777 {
			t.Fatalf("accepted %+v", m)
		}
		out, err := m.Encode()
		if err != nil {
			t.Fatal(err)
		}
		// The oldest version that says it, and its word for the default.
		if m.Version = m.lowest(); m.Compare == CompareMtime {
			m.Compare = ""
			m.Version = m.lowest()
		}
		if back, err := DecodeManifest(out); err != nil || !cmp.Equal(m, back) {
			t.Fatalf("%v\n%s", err, cmp.Diff(m, back))
		}
	})
}

// TestTimesThatDoNotFit: a time of no sense stays on its side of all others.
func TestTimesThatDoNotFit(t *testing.T) {
	now := time.Date(2026, 12, 1, 0, 0, 0, 7, time.UTC)
	if got := MtimeNS(now); got != now.UnixNano() {
		t.Errorf("%d, want %d", got, now.UnixNano())
	}
	for _, year := range []int{2263, 2446, 9999, 1 << 20} {
		if got := time.Unix(0, MtimeNS(time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC))).UTC().Year(); got != 2262 {
			t.Errorf("%d became %d", year, got)
		}
	}
	for _, year := range []int{1600, -5} {
		if got := time.Unix(0, MtimeNS(time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC))).UTC().Year(); got != 1677 {
			t.Errorf("%d became %d", year, got)
		}
	}
}
