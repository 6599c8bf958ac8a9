package peer

import (
	"errors"
	"strings"
	"testing"
)

func TestValidName(t *testing.T) {
	long := strings.Repeat("a", MaxName)
	for _, name := range []string{"a", "0", "node-1", "a.b.c", "10.0.0.1", long, "a--b"} {
		if err := ValidName(name); err != nil {
			t.Errorf("ValidName(%q): %v", name, err)
		}
	}
	for _, name := range []string{"", "A", "a_b", "-a", "a-", ".a", "a.", "a..b", "a b", "é", "a/b", "a\n", long + "a", "a:1", `a"b`} {
		if err := ValidName(name); !errors.Is(err, ErrName) {
			t.Errorf("ValidName(%q) = %v", name, err)
		}
	}
}

// Every valid name must survive a certificate: crypto/x509 has its own idea of
// a URI's host.
func FuzzValidNameFitsCertificate(f *testing.F) {
	for _, s := range []string{"a", "a.b", "1.2.3.4", "a-.b", "a.-b", "0x7f.1", "xn--a"} {
		f.Add(s)
	}
	key, err := newKey()
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if ValidName(name) != nil {
			return
		}
		cert, err := selfSign(key, name)
		if err != nil {
			t.Fatalf("%q: %v", name, err)
		}
		if got, err := certName(cert); err != nil || got != name {
			t.Fatalf("certName of %q = %q, %v", name, got, err)
		}
	})
}

func TestParseFingerprint(t *testing.T) {
	id := testIdentity(t, "a")
	for _, s := range []string{id.Fingerprint, strings.ToUpper(id.Fingerprint), " " + id.Fingerprint + "\n"} {
		if got, err := ParseFingerprint(s); err != nil || got != id.Fingerprint {
			t.Errorf("ParseFingerprint(%q) = %q, %v", s, got, err)
		}
	}
	for _, s := range []string{"", "sha256:", id.Fingerprint[1:], id.Fingerprint + "00", id.Fingerprint[7:], strings.Replace(id.Fingerprint, "sha256", "sha512", 1), id.Fingerprint[:70] + "g"} {
		_, err := ParseFingerprint(s)
		mentionErr(t, err, "mover identity", "64 hexadecimal digits")
	}
}

func TestParseAddress(t *testing.T) {
	for _, tt := range []struct {
		in     string
		listen bool
		want   string // "" for an error
	}{
		{"host:1", false, "host:1"},
		{"host", false, "host:9471"},
		{"10.0.0.1", false, "10.0.0.1:9471"},
		{"[::1]:9471", false, "[::1]:9471"},
		{"[::1]", false, "[::1]:9471"},
		{"[fe80::1%eth0]:1", false, "[fe80::1%eth0]:1"},
		{":9471", true, ":9471"},
		{"127.0.0.1:0", true, "127.0.0.1:0"},
		{":9471", false, ""},
		{"host:0", false, ""},
		{"::1:9471", false, ""},
		{"::1", false, ""},
		{"fe80::1%eth0", true, ""},
		{"[host]:1", false, ""},
		{"[10.0.0.1]:1", false, ""},
		{"[::1:9471", false, ""},
		{"host:", false, ""},
		{"host:65536", false, ""},
		{"host:http", false, ""},
		{"ho st:1", false, ""},
		{"http://host:1", false, ""},
		{"", false, ""},
	} {
		got, err := parseAddress(tt.in, tt.listen)
		if got != tt.want || (err == nil) != (tt.want != "") {
			t.Errorf("parseAddress(%q, %v) = %q, %v, want %q", tt.in, tt.listen, got, err, tt.want)
		}
		if err != nil {
			mentionErr(t, err, "[2001:db8::1]:9471")
		}
	}
	got, err := expandAddresses([]string{"{node}:1", "{node}.example"}, "b")
	if err != nil || strings.Join(got, " ") != "b:1 b.example:9471" {
		t.Errorf("expandAddresses = %v, %v", got, err)
	}
}
