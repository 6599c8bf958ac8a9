package peer

import (
	"crypto/x509"
	"errors"
	"net/url"
	"path/filepath"
	"testing"
	"time"
)

// testCA makes a CA and returns its directory and the file nodes trust.
func testCA(t *testing.T) (dir, file string) {
	t.Helper()
	dir = t.TempDir()
	if err := InitCA(dir); err != nil {
		t.Fatal(err)
	}
	return dir, filepath.Join(dir, CACertFile)
}

func issued(t *testing.T, ca, name string, from, until time.Time) *Identity {
	t.Helper()
	id, err := issue(ca, name, nil, nil, from, until)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// signedBy makes an identity whose certificate change has had its way with.
func signedBy(t *testing.T, ca, name string, change func(*x509.Certificate)) *x509.Certificate {
	t.Helper()
	caCert, caKey, err := loadCA(ca)
	if err != nil {
		t.Fatal(err)
	}
	key, err := newKey()
	if err != nil {
		t.Fatal(err)
	}
	tmpl, err := nodeTemplate(name)
	if err != nil {
		t.Fatal(err)
	}
	tmpl.NotBefore, tmpl.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	change(tmpl)
	cert, err := sign(tmpl, caCert, key.Public(), caKey)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

func TestVerify(t *testing.T) {
	now := time.Now()
	ca, caFile := testCA(t)
	otherCA, _ := testCA(t)
	good := issued(t, ca, "b", now.Add(-time.Hour), now.Add(time.Hour)).Certificate.Leaf
	self := testIdentity(t, "b").Certificate.Leaf
	pinned := func(c *x509.Certificate) Trust {
		return Trust{Peers: map[string]PeerConfig{"b": {Fingerprint: Fingerprint(c)}}}
	}
	withCA := Trust{CAFile: caFile}
	uri := func(s string) *url.URL {
		u, err := url.Parse(s)
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	const server, client = x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth
	for _, tt := range []struct {
		name  string
		trust Trust
		cert  *x509.Certificate
		want  string
		usage x509.ExtKeyUsage
		err   error // nil: trusted
		says  []string
	}{
		{"pin", pinned(self), self, "b", server, nil, nil},
		{"pin, accepted", pinned(self), self, "", client, nil, nil},
		{"pin of a CA's certificate", pinned(good), good, "b", server, nil, nil},
		{"pin of an expired certificate", pinned(self), signedWith(t, self, now), "b", server, ErrUntrusted, []string{"configured"}},
		{"other pin", pinned(good), self, "b", server, ErrUntrusted, []string{Fingerprint(self), Fingerprint(good), "mover identity", `set on "a": peers: {"b": {fingerprint: "` + Fingerprint(self) + `"}}`}},
		{"other pin beats the CA", Trust{CAFile: caFile, Peers: pinned(self).Peers}, good, "b", server, ErrUntrusted, []string{Fingerprint(good)}},
		{"pin with a wrong name", pinned(self), self, "c", server, ErrWrongName, []string{`"b"`, `not "c"`, "addresses"}},
		{"unknown", Trust{}, self, "", client, ErrUntrusted, []string{Fingerprint(self), "mover identity", `add on "a": peers: {"b": {addresses: ["b:9471"], fingerprint: "` + Fingerprint(self) + `"}}`}},
		{"no certificate", Trust{}, nil, "b", client, ErrUntrusted, []string{"no certificate"}},
		{"CA", withCA, good, "b", server, nil, nil},
		{"CA, accepted", withCA, good, "", client, nil, nil},
		{"CA, self-signed", withCA, self, "b", server, ErrUntrusted, []string{`not of the CA that "a" trusts`, "issue it with that CA", Fingerprint(self)}},
		{"other CA", withCA, issued(t, otherCA, "b", now.Add(-time.Hour), now.Add(time.Hour)).Certificate.Leaf, "b", server, ErrUntrusted, []string{`not of the CA that "a" trusts`}},
		{"CA, wrong name", withCA, good, "c", server, ErrWrongName, []string{`"b"`, `not "c"`}},
		{"expired", withCA, issued(t, ca, "b", now.Add(-time.Hour), now.Add(-time.Minute)).Certificate.Leaf, "b", server, ErrExpired, []string{"expired on", date(now.Add(-time.Minute)), "mover ca issue b", "clock"}},
		{"not yet valid", withCA, issued(t, ca, "b", now.Add(time.Minute), now.Add(time.Hour)).Certificate.Leaf, "", client, ErrExpired, []string{"not valid before", date(now.Add(time.Minute)), "clock"}},
		{"client only", withCA, signedBy(t, ca, "b", func(c *x509.Certificate) { c.ExtKeyUsage = c.ExtKeyUsage[1:] }), "b", server, ErrUntrusted, []string{"server authentication", "mover ca issue b"}},
		{"server only", withCA, signedBy(t, ca, "b", func(c *x509.Certificate) { c.ExtKeyUsage = c.ExtKeyUsage[:1] }), "", client, ErrUntrusted, []string{"client and server"}},
		{"no name", withCA, signedBy(t, ca, "b", func(c *x509.Certificate) { c.URIs = nil }), "b", server, ErrWrongName, []string{"no mover://NODE", "mover ca issue"}},
		{"DNS name only", withCA, signedBy(t, ca, "b", func(c *x509.Certificate) { c.URIs, c.DNSNames = nil, []string{"b"} }), "b", server, ErrWrongName, []string{"no mover://NODE"}},
		{"two names", withCA, signedBy(t, ca, "b", func(c *x509.Certificate) { c.URIs = append(c.URIs, nameURI("c")) }), "b", server, ErrWrongName, []string{"several"}},
		{"other scheme beside", withCA, signedBy(t, ca, "b", func(c *x509.Certificate) { c.URIs = append(c.URIs, uri("spiffe://c/d")) }), "b", server, nil, nil},
		{"name with a path", withCA, signedBy(t, ca, "b", func(c *x509.Certificate) { c.URIs = []*url.URL{uri("mover://b/c")} }), "b", server, ErrWrongName, []string{"more than"}},
		{"name with a user", withCA, signedBy(t, ca, "b", func(c *x509.Certificate) { c.URIs = []*url.URL{uri("mover://c@b")} }), "b", server, ErrWrongName, nil},
		{"name in upper case", withCA, signedBy(t, ca, "b", func(c *x509.Certificate) { c.URIs = []*url.URL{uri("mover://B")} }), "b", server, ErrWrongName, []string{"node name"}},
	} {
		tr, err := newTrust(tt.trust, "a", func() time.Time { return now })
		if err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		var chain []*x509.Certificate
		if tt.cert != nil {
			chain = append(chain, tt.cert)
		}
		name, err := tr.verify(chain, tt.want, tt.usage)
		if tt.err == nil {
			if err != nil || name != "b" {
				t.Errorf("%s: %q, %v", tt.name, name, err)
			}
			continue
		}
		var refused *RefusedError
		if !errors.Is(err, tt.err) || !errors.As(err, &refused) {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.err)
			continue
		}
		t.Run(tt.name, func(t *testing.T) { mentionErr(t, err, tt.says...) })
	}
}

// signedWith is a certificate with another key than c's.
func signedWith(t *testing.T, c *x509.Certificate, now time.Time) *x509.Certificate {
	t.Helper()
	id := testIdentity(t, c.Subject.CommonName)
	return id.Certificate.Leaf
}

func TestExpiryDoesNotConcernPins(t *testing.T) {
	now := time.Now()
	ca, _ := testCA(t)
	old := issued(t, ca, "b", now.Add(-time.Hour), now.Add(-time.Minute)).Certificate.Leaf
	tr, err := newTrust(Trust{Peers: map[string]PeerConfig{"b": {Fingerprint: Fingerprint(old)}}}, "a", time.Now)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tr.verify([]*x509.Certificate{old}, "b", x509.ExtKeyUsageServerAuth); err != nil {
		t.Error(err)
	}
}

func TestIntermediate(t *testing.T) {
	now := time.Now()
	root, caFile := testCA(t)
	// A root that may have another CA below it.
	cert, key, err := loadCA(root)
	if err != nil {
		t.Fatal(err)
	}
	long := *cert
	long.MaxPathLenZero, long.MaxPathLen = false, -1
	rootCert, err := sign(&long, &long, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	write(t, caFile, string(encodeCerts(rootCert)), 0o600)
	sub := t.TempDir()
	if err := InitCA(sub); err != nil {
		t.Fatal(err)
	}
	subCert, _, err := loadCA(sub)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := sign(subCert, rootCert, subCert.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	leaf := issued(t, sub, "b", now.Add(-time.Hour), now.Add(time.Hour)).Certificate.Leaf
	tr, err := newTrust(Trust{CAFile: caFile}, "a", time.Now)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tr.verify([]*x509.Certificate{leaf, signed}, "b", x509.ExtKeyUsageServerAuth); err != nil {
		t.Error(err)
	}
	if _, err := tr.verify([]*x509.Certificate{leaf}, "b", x509.ExtKeyUsageServerAuth); !errors.Is(err, ErrUntrusted) {
		t.Error(err)
	}
}

func TestTrustIsChecked(t *testing.T) {
	ca, caFile := testCA(t)
	fp := testIdentity(t, "b").Fingerprint
	leafFile := filepath.Join(t.TempDir(), "leaf.crt")
	write(t, leafFile, string(encodeCerts(issued(t, ca, "b", time.Now(), time.Now().Add(time.Hour)).Certificate.Leaf)), 0o600)
	peers := func(name string, p PeerConfig) Trust { return Trust{Peers: map[string]PeerConfig{name: p}} }
	for name, tt := range map[string]struct {
		trust Trust
		says  []string
	}{
		"name":          {peers("B", PeerConfig{Fingerprint: fp}), []string{`peer "B"`, "node name"}},
		"fingerprint":   {peers("b", PeerConfig{Fingerprint: "x"}), []string{`peer "b"`, "mover identity"}},
		"nothing":       {peers("b", PeerConfig{}), []string{`peer "b"`, "fingerprint", "CA file"}},
		"address":       {peers("b", PeerConfig{Fingerprint: fp, Addresses: []string{"::1:9471"}}), []string{`peer "b"`, "brackets"}},
		"addresses":     {peers("b", PeerConfig{Fingerprint: fp, Addresses: make([]string, MaxAddresses+1)}), []string{"at most 16"}},
		"pattern":       {Trust{Addresses: []string{"{node}:0"}}, []string{"port"}},
		"no CA file":    {Trust{CAFile: "/nonexistent/ca.crt"}, []string{"/nonexistent/ca.crt", "mover ca init"}},
		"CA key":        {Trust{CAFile: filepath.Join(ca, CAKeyFile)}, []string{"no certificate"}},
		"not a CA file": {Trust{CAFile: leafFile}, []string{leafFile, "not a CA's"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := newTrust(tt.trust, "a", time.Now)
			mentionErr(t, err, tt.says...)
		})
	}
	tr, err := newTrust(Trust{CAFile: caFile, Addresses: []string{"{node}.example:1"}, Peers: map[string]PeerConfig{"b": {Addresses: []string{"h:2"}}, "c": {}}}, "a", time.Now)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"b": "h:2", "c": "c.example:1", "d": "d.example:1"} {
		if got, err := tr.addresses(name); err != nil || len(got) != 1 || got[0] != want {
			t.Errorf("addresses(%q) = %v, %v", name, got, err)
		}
	}
	tr, err = newTrust(peers("b", PeerConfig{Fingerprint: fp}), "a", time.Now)
	if err != nil {
		t.Fatal(err)
	}
	_, err = tr.addresses("b")
	mentionErr(t, err, "no control address", `peers: {"b": {addresses: ["b:9471"]}}`)
	_, err = tr.addresses("c")
	if !errors.Is(err, ErrUnknownPeer) {
		t.Error(err)
	}
	mentionErr(t, err, `peers: {"c": {addresses: ["c:9471"], fingerprint:`)
}
