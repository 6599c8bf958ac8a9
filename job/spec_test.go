package job

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const minimal = `{"source":{"path":"data/a"},"destination":{"node":"b","path":"in/x"}}`

// with returns the minimal job with more fields.
func with(fields string) string { return strings.TrimSuffix(minimal, "}") + "," + fields + "}" }

func sides(source, destination string) string {
	return fmt.Sprintf(`{"source":%s,"destination":%s}`, source, destination)
}

// buf is a job from a file to a buffer with more fields.
func buf(fields string) string {
	return strings.Replace(sides(`{"path":"data/a"}`, `{"buffer":"b"}`), `{`, `{`+fields+`,`, 1)
}

func TestSpecDefaults(t *testing.T) {
	s, err := ParseSpec([]byte(minimal))
	if err == nil {
		s, err = s.Normalize("a")
	}
	if err != nil {
		t.Fatal(err)
	}
	yes := true
	want := Spec{
		Source: Place{Node: "a", Path: "data/a"}, Destination: Place{Node: "b", Path: "in/x"},
		Overwrite: "fail", Compare: "mtime", Verify: "crc32c", Durable: &yes,
		Preserve: []string{"mode", "mtime"}, Transport: "rc", OnError: "stop",
	}
	if diff := cmp.Diff(want, s); diff != "" {
		t.Error(diff)
	}
	if s.Source.Root() != "data" || s.Source.Sub() != "a" {
		t.Errorf("root %q, sub %q", s.Source.Root(), s.Source.Sub())
	}
	again, err := s.Normalize("a")
	if err != nil || !cmp.Equal(s, again) {
		t.Errorf("normalizing twice: %v\n%s", err, cmp.Diff(s, again))
	}
}

func TestSpecEveryFieldAccepted(t *testing.T) {
	s, err := ParseSpec([]byte(with(`"recursive":false,"include":[],"exclude":[],"overwrite":"always","compare":"mtime",
		"verify":"crc32c","expect":"crc32c:0A1b2c3D","durable":false,"preserve":[],"transport":"rc","priority":-7,
		"owner":"a/alice","labels":{"team":"ml","Team":"x"},"deadline":"2h","on_error":"continue"`)))
	if err == nil {
		s, err = s.Normalize("a")
	}
	if err != nil {
		t.Fatal(err)
	}
	crc, ok := s.ExpectedCRC32C()
	if !ok || crc != 0x0a1b2c3d || *s.Durable || s.Preserve == nil || len(s.Preserve) != 0 || s.Priority != -7 ||
		s.Labels["Team"] != "x" || time.Duration(s.Deadline) != 2*time.Hour {
		t.Errorf("got %+v", s)
	}
	data, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	back, err := ParseSpec(data)
	if err != nil {
		t.Fatal(err)
	}
	if back, err = back.Normalize("a"); err != nil || back.fingerprint() != s.fingerprint() {
		t.Errorf("through JSON: %v\n%s", err, cmp.Diff(s, back))
	}
}

func TestTrailingSlash(t *testing.T) {
	for _, c := range []struct{ source, destination, want string }{
		{"data/a", "in/", "in/a"}, {"data/d/a", "in/x/", "in/x/a"}, {"data/d/a", "in/x", "in/x"},
		{"data//d/./a", "in//x//", "in/x/a"}, {"data/a ", "in/", "in/a "}, {"data/ü", "in/", "in/ü"},
	} {
		s := Spec{Source: Place{Path: c.source}, Destination: Place{Path: c.destination}}
		s, err := s.Normalize("a")
		if err != nil || s.Destination.Path != c.want {
			t.Errorf("%q to %q: %q, %v, want %q", c.source, c.destination, s.Destination.Path, err, c.want)
		}
	}
	s := Spec{Source: Place{PathB64: []byte("data/\xff")}, Destination: Place{Path: "in/"}}
	s, err := s.Normalize("a")
	if err != nil || s.Destination.Path != "" || s.Destination.FullPath() != "in/\xff" {
		t.Errorf("not UTF-8: %+v, %v", s.Destination, err)
	}
	s = Spec{Source: Place{PathB64: []byte("data/x")}, Destination: Place{Path: "in/"}}
	if s, err = s.Normalize("a"); err != nil || s.Source.Path != "data/x" || s.Source.PathB64 != nil {
		t.Errorf("UTF-8 in base64: %+v, %v", s.Source, err)
	}
}

func TestSpecRefused(t *testing.T) {
	dst := `{"path":"in/x"}`
	long := strings.Repeat("x/", 2100)
	for name, c := range map[string]struct {
		body        string
		field       string
		unsupported bool
	}{
		"empty":              {``, "", false},
		"not JSON":           {`{`, "", false},
		"a list":             {`[]`, "", false},
		"a number":           {`1`, "", false},
		"null":               {`null`, "", false},
		"trailing garbage":   {minimal + `{}`, "", false},
		"trailing letter":    {minimal + `x`, "", false},
		"not UTF-8":          {with(`"owner":"` + "\xff" + `"`), "", false},
		"lone surrogate":     {with(`"labels":{"a":"\ud800"}`), "", false},
		"lone low":           {with(`"labels":{"a":"\udc00x"}`), "", false},
		"deep":               {strings.Repeat("[", 500000), "", false},
		"deep inside":        {with(`"labels":{"a":` + strings.Repeat("[", 5000) + strings.Repeat("]", 5000) + `}`), "labels", false},
		"huge":               {with(`"owner":"` + strings.Repeat("x", MaxSpecBytes) + `"`), "", false},
		"unknown":            {with(`"nope":1`), "", false},
		"unknown in side":    {sides(`{"path":"data/a","nope":1}`, dst), "source", false},
		"case of a key":      {with(`"Owner":"a/b"`), "", false},
		"twice":              {with(`"priority":1,"priority":2`), "", false},
		"twice, escaped":     {with(`"priority":1,"\u0070riority":2`), "", false},
		"twice in a side":    {sides(`{"path":"data/a","path":"data/b"}`, dst), "source", false},
		"twice in labels":    {with(`"labels":{"a":"1","a":"2"}`), "labels", false},
		"null field":         {with(`"deadline":null`), "deadline", false},
		"null pointer":       {with(`"durable":null`), "durable", false},
		"type: bool":         {with(`"durable":"yes"`), "durable", false},
		"type: string":       {with(`"owner":7`), "owner", false},
		"type: object":       {sides(`"data/a"`, dst), "source", false},
		"type: list":         {with(`"preserve":"mode"`), "preserve", false},
		"type: list entry":   {with(`"preserve":["mode",1]`), "preserve[1]", false},
		"type: label":        {with(`"labels":{"a":1}`), "labels", false},
		"no fraction":        {with(`"priority":1.5`), "priority", false},
		"no exponent":        {with(`"priority":1e2`), "priority", false},
		"out of range":       {with(`"priority":99999999999999999999`), "priority", false},
		"base64":             {sides(`{"path_b64":"%%%"}`, dst), "source.path_b64", false},
		"no source":          {`{"destination":` + dst + `}`, "source.path", false},
		"no destination":     {`{"source":{"path":"data/a"}}`, "destination.path", false},
		"both paths":         {sides(`{"path":"data/a","path_b64":"ZGF0YS9i"}`, dst), "source", false},
		"absolute":           {sides(`{"path":"/etc/passwd"}`, dst), "source.path", false},
		"dot dot":            {sides(`{"path":"data/../../etc/passwd"}`, dst), "source.path", false},
		"dot dot at the end": {sides(`{"path":"data/a"}`, `{"path":"in/.."}`), "destination.path", false},
		"root dot dot":       {sides(`{"path":"../a"}`, dst), "source.path", false},
		"only dots":          {sides(`{"path":"./."}`, dst), "source.path", false},
		"root's name":        {sides(`{"path":"da ta/a"}`, dst), "source.path", false},
		"NUL":                {sides(`{"path":"data/a\u0000b"}`, dst), "source.path", false},
		"long":               {sides(`{"path":"data/`+long+`"}`, dst), "source.path", false},
		"long once joined":   {sides(`{"path":"data/`+strings.Repeat("s", 255)+`"}`, `{"path":"in/`+long[:4000]+`"}`), "destination.path", false},
		"long in base64":     {sides(`{"path_b64":"`+strings.Repeat("YWFh", 1400)+`"}`, dst), "source.path_b64", false},
		"node's name":        {sides(`{"node":"a b","path":"data/a"}`, dst), "source.node", false},
		"source directory":   {sides(`{"path":"data/a/"}`, dst), "source.path", false},
		"source root":        {sides(`{"path":"data"}`, dst), "source.path", false},
		"destination root":   {sides(`{"path":"data/a"}`, `{"path":"in"}`), "destination.path", false},
		"offset of a path":   {sides(`{"path":"data/a","offset":0}`, dst), "source", false},
		"length of a path":   {sides(`{"path":"data/a","length":"1MiB"}`, dst), "source", false},
		"offset's unit":      {sides(`{"path":"data/a","offset":"1M"}`, dst), "source.offset", false},
		"offset's sign":      {sides(`{"path":"data/a","offset":-1}`, dst), "source.offset", false},
		"buffer and path":    {sides(`{"buffer":"b","path":"data/a"}`, dst), "source", false},
		"buffer's range":     {sides(`{"buffer":"b","offset":1,"length":9223372036854775807}`, dst), "source.length", false},
		"buffers' lengths":   {sides(`{"buffer":"b","length":1}`, `{"buffer":"c","length":2}`), "destination.length", false},
		"buffer into /":      {sides(`{"buffer":"b"}`, `{"path":"in/"}`), "destination.path", false},
		"buffer into root":   {sides(`{"buffer":"b"}`, `{"path":"in"}`), "destination.path", false},
		"directory to it":    {sides(`{"path":"data/d/"}`, `{"buffer":"b"}`), "source.path", false},
		"buffer, recursive":  {buf(`"recursive":true`), "recursive", false},
		"buffer, include":    {buf(`"include":["*"]`), "include", false},
		"buffer, exclude":    {buf(`"exclude":["*"]`), "exclude", false},
		"buffer, preserve":   {buf(`"preserve":["mode"]`), "preserve", false},
		"buffer, overwrite":  {buf(`"overwrite":"fail"`), "overwrite", false},
		"buffer, newer":      {strings.Replace(sides(`{"buffer":"b"}`, dst), `{`, `{"overwrite":"if_newer",`, 1), "overwrite", false},
		"buffer's name":      {sides(`{"buffer":"b/c"}`, dst), "source.buffer", false},
		"include":            {with(`"include":["*"]`), "include", false},
		"exclude":            {with(`"exclude":["*"]`), "exclude", false},
		"include's syntax":   {with(`"recursive":true,"include":["a","["]`), "include", false},
		"exclude's syntax":   {with(`"recursive":true,"exclude":["a/../b"]`), "exclude", false},
		"expect of a tree":   {with(`"recursive":true,"expect":"crc32c:00000000"`), "expect", false},
		"overwrite":          {with(`"overwrite":"maybe"`), "overwrite", false},
		"compare":            {with(`"compare":"crc"`), "compare", false},
		"compare's value":    {with(`"overwrite":"if_different","compare":"size"`), "compare", false},
		"verify":             {with(`"verify":"md5"`), "verify", false},
		"expect":             {with(`"expect":"md5:00"`), "expect", false},
		"expect nothing":     {with(`"verify":"none","expect":"crc32c:00000000"`), "expect", false},
		"preserve":           {with(`"preserve":["acl"]`), "preserve", false},
		"preserve twice":     {with(`"preserve":["mode","mode"]`), "preserve", false},
		"transport":          {with(`"transport":"tcp"`), "transport", false},
		"transport uc":       {with(`"transport":"uc"`), "transport", true},
		"priority":           {with(`"priority":101`), "priority", false},
		"owner":              {with(`"owner":"alice"`), "owner", false},
		"label key":          {with(`"labels":{"a b":"x"}`), "labels", false},
		"label value":        {with(`"labels":{"a":"\u0007"}`), "labels", false},
		"bandwidth":          {with(`"bandwidth_limit":"0bit/s"`), "bandwidth_limit", false},
		"bandwidth's unit":   {with(`"bandwidth_limit":"20G"`), "bandwidth_limit", false},
		"bandwidth's type":   {with(`"bandwidth_limit":20}`), "", false},
		"deadline":           {with(`"deadline":"soon"`), "deadline", false},
		"deadline's type":    {with(`"deadline":7200`), "deadline", false},
		"deadline's length":  {with(`"deadline":"366d"`), "deadline", false},
		"on_error":           {with(`"on_error":"ignore"`), "on_error", false},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := ParseSpec([]byte(c.body))
			if err == nil {
				err = s.Validate("a")
			}
			var fe *FieldError
			if !errors.As(err, &fe) {
				t.Fatalf("got %v, want a FieldError", err)
			}
			if fe.Field != c.field || fe.Unsupported != c.unsupported {
				t.Errorf("got field %q, unsupported %v (%v)", fe.Field, fe.Unsupported, err)
			}
			if c.unsupported != strings.Contains(err.Error(), "not supported by this version") {
				t.Errorf("text: %v", err)
			}
			for _, echo := range []string{"nope", "passwd", "acl", "md5", "alice", "maybe", "soon", "tcp"} {
				if strings.Contains(err.Error(), echo) {
					t.Errorf("the input comes back: %v", err)
				}
			}
		})
	}
}

func TestTooManyLabels(t *testing.T) {
	s := Spec{Source: Place{Path: "d/a"}, Destination: Place{Path: "d/b"}, Labels: map[string]string{}}
	for i := range MaxLabels {
		s.Labels[fmt.Sprint("l", i)] = ""
	}
	if err := s.Validate("a"); err != nil {
		t.Error(err)
	}
	s.Labels["more"] = ""
	if err := s.Validate("a"); err == nil {
		t.Error("accepted")
	}
}

func TestSurrogatePairsAndBackslashes(t *testing.T) {
	for in, want := range map[string]bool{
		`"\ud83d\ude00"`: false, `"\\ud800"`: false, `"\\\ud800"`: true, `"\ud800\\udc00"`: true, `"\ud800\ud800\udc00"`: true,
		`"\uD83D\uDE00\n"`: false, `"\u0041"`: false, `"\udc00\ud800"`: true,
	} {
		if got := loneSurrogate([]byte(in)); got != want {
			t.Errorf("%s: %v, want %v", in, got, want)
		}
	}
}

// FuzzSpec: whatever is accepted has every default, stays the same when it is
// normalized again or goes through JSON, and cannot name anything outside a root.
func FuzzSpec(f *testing.F) {
	f.Add([]byte(minimal))
	f.Add([]byte(with(`"labels":{"a":"\ud83d\ude00"},"deadline":"2h","preserve":[]`)))
	f.Add([]byte(with(`"bandwidth_limit":"20Gbit/s"`)))
	f.Add([]byte(sides(`{"path_b64":"ZGF0YS//"}`, `{"path":"in//./"}`)))
	f.Add([]byte(sides(`{"buffer":"b","offset":"64MiB","length":1}`, `{"path":"in/../x"}`)))
	f.Add([]byte(`{"source":{"path":"a/b"},"SOURCE":{}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := ParseSpec(data)
		if err == nil {
			s, err = s.Normalize("a")
		}
		if err != nil {
			var fe *FieldError
			if !errors.As(err, &fe) {
				t.Fatalf("not a FieldError: %v", err)
			}
			return
		}
		for _, p := range []Place{s.Source, s.Destination} {
			parts := strings.Split(p.FullPath(), "/")
			if len(parts) < 2 && !s.Recursive && p.Buffer == "" || slices.Contains(parts, "..") || slices.Contains(parts, "") || slices.Contains(parts, ".") ||
				strings.Contains(p.FullPath(), "\x00") || !ValidName(p.Node) || !ValidName(p.Root()) {
				t.Fatalf("accepted %q on %q", p.FullPath(), p.Node)
			}
		}
		out, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		back, err := ParseSpec(out)
		if err != nil {
			t.Fatalf("own output %s: %v", out, err)
		}
		back, err = back.Normalize("a")
		if err != nil || back.fingerprint() != s.fingerprint() || !maps.Equal(back.Labels, s.Labels) {
			t.Fatalf("through JSON: %v\n%s", err, cmp.Diff(s, back))
		}
	})
}
