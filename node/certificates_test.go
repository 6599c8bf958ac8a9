package node

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mover/peer"
)

// certificateUntil is a self-signed certificate, in DER.
func certificateUntil(t *testing.T, end time.Time) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: end.Add(-time.Hour), NotAfter: end}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

// TestCertificateEnds: the first that expires of a chain or a file counts, and
// a reload that takes the CA away takes its date away.
func TestCertificateEnds(t *testing.T) {
	early, late := time.Date(2027, 1, 2, 3, 4, 5, 0, time.UTC), time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	file := filepath.Join(t.TempDir(), "ca.crt")
	var text []byte
	for _, end := range []time.Time{late, early} {
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificateUntil(t, end)})...)
	}
	if err := os.WriteFile(file, text, 0o644); err != nil {
		t.Fatal(err)
	}

	n := &Node{}
	n.identity.Store(&peer.Identity{Certificate: tls.Certificate{Certificate: [][]byte{certificateUntil(t, late)}}})
	if diff := cmp.Diff(map[string]time.Time{"node": late}, n.certificateEnds()); diff != "" {
		t.Error(diff)
	}
	n.web = &web{}
	n.web.cert.Store(&tls.Certificate{Certificate: [][]byte{certificateUntil(t, late), certificateUntil(t, early)}})
	if err := n.noteCA(file); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]time.Time{"node": late, "api": early, "ca": early}, n.certificateEnds()); diff != "" {
		t.Error(diff)
	}
	n.identity.Store(&peer.Identity{Certificate: tls.Certificate{Certificate: [][]byte{certificateUntil(t, early)}}})
	n.web.cert.Store(nil)
	if err := n.noteCA(""); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]time.Time{"node": early}, n.certificateEnds()); diff != "" {
		t.Error(diff)
	}
}

// TestReloadedCertificateExpires: the date is that of the certificate that a
// reload took over.
func TestReloadedCertificateExpires(t *testing.T) {
	n := runNodes(t, func(*Node) {}, "a")[0]
	caDir, issued := filepath.Join(t.TempDir(), "ca"), filepath.Join(t.TempDir(), "issued")
	if err := peer.InitCA(caDir); err != nil {
		t.Fatal(err)
	}
	id, err := peer.Issue(caDir, "a", nil, nil, 24*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if err := id.Save(issued); err != nil {
		t.Fatal(err)
	}
	for _, f := range []string{peer.KeyFile, peer.CertFile} {
		if err := os.Rename(filepath.Join(issued, f), filepath.Join(n.cfg.IdentityDir(), f)); err != nil {
			t.Fatal(err)
		}
	}
	next := configOf(t, "a", n.dir, "")
	next.Control.CA = filepath.Join(caDir, peer.CACertFile)
	if _, err := n.Reload(next); err != nil {
		t.Fatal(err)
	}
	ends := n.certificateEnds()
	if got := time.Until(ends["node"]); got < 23*time.Hour || got > 24*time.Hour {
		t.Errorf("the node's certificate expires in %v, that which was taken over in 24 h", got)
	}
	if got := time.Until(ends["ca"]); got < 9*365*24*time.Hour {
		t.Errorf("the CA expires in %v, that which was made in ten years", got)
	}
}
