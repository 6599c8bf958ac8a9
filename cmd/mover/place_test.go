package main

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestRemotePlaces(t *testing.T) {
	for argument, want := range map[string]bool{
		"host-b:incoming/x": true, "host-b:": true, ":x": true, "a:b:c": true,
		"./a:b": false, "/srv/a:b": false, "dir/a:b": false, "file": false, "": false,
	} {
		if got := isRemotePlace(argument); got != want {
			t.Errorf("isRemotePlace(%q) = %v", argument, got)
		}
	}
	for argument, want := range map[string]place{
		"host-b:incoming/": {node: "host-b", path: "incoming/"}, "b:r/a:b": {node: "b", path: "r/a:b"},
		"b:buffer:w":          {node: "b", buffer: "w", offset: -1, length: -1},
		"b:buffer:w+4096":     {node: "b", buffer: "w", offset: 4096, length: -1},
		"b:buffer:w+0+1.5GiB": {node: "b", buffer: "w", length: 3 << 29},
		"b:buffer/x":          {node: "b", path: "buffer/x"}, // a root of that name
		"b:buffer:":           {},
		"b:buffer:w+":         {},
		"b:buffer:w+1+2+3":    {},
		"b:buffer:w+-1":       {},
		"b:buffer:w+1Mb":      {},
		"b:buffer:a/b":        {},
		":x":                  {}, "b:": {}, "b:/srv/x": {},
	} {
		got, err := parseRemote(argument)
		if got != want || (err == nil) != (want != place{}) {
			t.Errorf("parseRemote(%q) = %+v, %v", argument, got, err)
		}
	}
}

func TestLocalPlaces(t *testing.T) {
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"srv/data/sub", "home"} {
		if err := os.MkdirAll(filepath.Join(top, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for link, target := range map[string]string{"home/link": "srv/data", "rootlink": "srv/data", "srv/data/out": "home"} {
		if err := os.Symlink(filepath.Join(top, target), filepath.Join(top, link)); err != nil {
			t.Fatal(err)
		}
	}
	roots := []rootDir{{"data", top + "/srv/data"}, {"deep", top + "/srv/data/sub"}}
	for _, c := range []struct{ argument, cwd, want string }{
		{"x", "srv/data", "data/x"},
		{"./x", "srv/data", "data/x"},
		{"../data/x", "srv/data", "data/x"},
		{top + "/srv/data/x", "home", "data/x"},
		{"sub/", "srv/data", "deep/"},
		{"sub/y", "srv/data", "deep/y"},
		{".", "srv/data", "data/"},
		{"link/x", "home", "data/x"}, // through a link outside the root
		{"out", "srv/data", "data/out"},
		{"absent/x", "srv/data", "data/absent/x"},
		{"x", "home", ""},
		{top + "/srv/database", "home", ""}, // a longer name is not below
		{"../../home/x", "srv/data", ""},
	} {
		got, err := mapLocal(c.argument, filepath.Join(top, c.cwd), roots)
		if got.path != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%s in %s: %+v, %v; want %q", c.argument, c.cwd, got, err, c.want)
		}
		if err != nil && !strings.Contains(err.Error(), "data = "+top+"/srv/data") {
			t.Errorf("%s: does not list the roots: %v", c.argument, err)
		}
	}
	// The root itself is named through a link.
	got, err := mapLocal(top+"/srv/data/x", "/", []rootDir{{"linked", top + "/rootlink"}})
	if err != nil || got.path != "linked/x" {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestIsThisHost(t *testing.T) {
	own := []netip.Addr{netip.MustParseAddr("192.0.2.1")}
	for server, want := range map[string]bool{
		"http://127.0.0.1:9470": true, "http://[::1]:9470": true, "https://localhost:1": true, "https://192.0.2.1:9470": true,
		"https://192.0.2.2:9470": false, "https://host-b:9470": false, "://": false,
	} {
		if got := isThisHost(server, own); got != want {
			t.Errorf("isThisHost(%q) = %v", server, got)
		}
	}
}

// FuzzParseRemote: whatever is typed is refused with a word of what to write,
// or is a place; a buffer reads back as it is shown.
func FuzzParseRemote(f *testing.F) {
	for _, s := range []string{"b:r/x", "b:buffer:w", "b:buffer:w+1GiB+512", "b:buffer:w+1+2+3", "b:buffer:+", ":", "b:buffer:w+99999999999999999999", "b:\xff/x", "b:buffer:w+1e9"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if !isRemotePlace(s) {
			return
		}
		p, err := parseRemote(s)
		if err != nil {
			if !strings.Contains(err.Error(), ":") {
				t.Fatalf("%q: %v", s, err)
			}
			return
		}
		if p.buffer == "" {
			if got := p.ofJob().FullPath(); got != p.path {
				t.Fatalf("%q became %q", p.path, got)
			}
			return
		}
		again, err := parseRemote(placeText(p.ofJob()))
		if err != nil || again != p {
			t.Fatalf("%q is %+v, shown as %s, which is %+v, %v", s, p, placeText(p.ofJob()), again, err)
		}
	})
}
