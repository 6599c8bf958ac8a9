package peer

import (
	"crypto"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"
)

// The files of an identity's directory.
const (
	KeyFile  = "node.key" // PKCS #8, 0600
	CertFile = "node.crt" // the node's certificate, then intermediates if any
)

// noExpiry is RFC 5280's date for "no well-defined expiration" (4.1.2.5). A
// self-signed certificate is only good for pinning, and a pin is of the key.
var noExpiry = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)

// ErrIdentity is wrapped by every error about an identity's files.
var ErrIdentity = errors.New("identity")

// Identity is a node's name, key and certificate. It is immutable and may be
// shared between goroutines.
//
// The key is ECDSA on P-256, because the same certificate also serves the
// node's HTTP API, where browsers and FIPS builds do not take Ed25519.
type Identity struct {
	// Name is the node's name, as the certificate has it.
	Name string
	// Fingerprint is Fingerprint of the certificate: what peers pin.
	Fingerprint string
	// Certificate is the chain and key in the form crypto/tls takes.
	Certificate tls.Certificate
}

// LoadOrCreate reads the identity in dir, or creates one for node with a
// self-signed certificate. created tells that a key or certificate was made.
//
// What is there is never replaced. A key without a certificate gets a new
// self-signed one, for a crash may have come between the two, and the key alone
// is what peers pin. A certificate without its key, a file that cannot be read
// or a certificate of another name is an error that says what to do.
func LoadOrCreate(dir, node string) (id *Identity, created bool, err error) {
	if err := ValidName(node); err != nil {
		return nil, false, fmt.Errorf("%w: %w", ErrIdentity, err)
	}
	if err := makeDir(dir); err != nil {
		return nil, false, fmt.Errorf("%w: create %s: %w", ErrIdentity, dir, err)
	}
	keyPath, certPath := filepath.Join(dir, KeyFile), filepath.Join(dir, CertFile)
	// The certificate first: another process may be making both, and makes the
	// key first, so a certificate without a key is never that.
	noCert, err := absent(certPath)
	if err != nil {
		return nil, false, fmt.Errorf("%w: %w", ErrIdentity, err)
	}
	noKey, err := absent(keyPath)
	if err != nil {
		return nil, false, fmt.Errorf("%w: %w", ErrIdentity, err)
	}
	if noKey && !noCert {
		return nil, false, fmt.Errorf("%w: %s is there but its key %s is not; restore the key from a backup, or move the certificate away to get a new identity (peers that pinned the old fingerprint must then be told the new one)",
			ErrIdentity, certPath, keyPath)
	}
	if noKey {
		if err := createKey(dir); err != nil {
			return nil, false, fmt.Errorf("%w: create %s: %w", ErrIdentity, keyPath, err)
		}
	}
	if noCert {
		if err := createSelfSigned(dir, node); err != nil {
			return nil, false, fmt.Errorf("%w: create %s: %w", ErrIdentity, certPath, err)
		}
	}
	id, err = Load(dir, node)
	return id, noKey || noCert, err
}

// Load reads the identity in dir, whose name must be node.
func Load(dir, node string) (*Identity, error) {
	keyPath, certPath := filepath.Join(dir, KeyFile), filepath.Join(dir, CertFile)
	fail := func(path string, err error) error {
		return fmt.Errorf("%w: %s: %w; restore it from a backup, or move %s and %s away to get a new identity (peers that pinned the old fingerprint must then be told the new one)",
			ErrIdentity, path, err, keyPath, certPath)
	}
	key, err := loadKey(keyPath)
	if err != nil {
		return nil, fail(keyPath, err)
	}
	data, err := readPEM(certPath, false)
	if err != nil {
		return nil, fail(certPath, err)
	}
	chain, err := parseCerts(data)
	if err != nil {
		return nil, fail(certPath, err)
	}
	id, err := newIdentity(key, chain)
	if err != nil {
		return nil, fail(certPath, err)
	}
	if id.Name != node {
		return nil, fmt.Errorf("%w: %s is the certificate of node %q, but this node is configured as %q; set the name back to %q, or move %s away: a self-signed certificate for %q is then made with the same key and fingerprint (with a CA, issue one instead), and the peers must know the node by that name",
			ErrIdentity, certPath, id.Name, node, id.Name, certPath, node)
	}
	return id, nil
}

// Save writes the identity to dir as LoadOrCreate reads it. It fails with
// fs.ErrExist, and writes nothing, if dir has one already.
func (id *Identity) Save(dir string) error {
	if err := makeDir(dir); err != nil {
		return fmt.Errorf("%w: create %s: %w", ErrIdentity, dir, err)
	}
	for _, name := range []string{KeyFile, CertFile} {
		path := filepath.Join(dir, name)
		if ok, err := absent(path); err != nil {
			return fmt.Errorf("%w: %w", ErrIdentity, err)
		} else if !ok {
			return fmt.Errorf("%w: %s: %w; choose another directory or move it away", ErrIdentity, path, fs.ErrExist)
		}
	}
	key, err := encodeKey(id.Certificate.PrivateKey.(crypto.Signer))
	if err != nil {
		return fmt.Errorf("%w: %w", ErrIdentity, err)
	}
	var certs []byte
	for _, der := range id.Certificate.Certificate {
		c, err := x509.ParseCertificate(der)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrIdentity, err)
		}
		certs = append(certs, encodeCerts(c)...)
	}
	// The key first: LoadOrCreate recovers from a key without a certificate.
	if err := createFile(dir, KeyFile, key); err != nil {
		return fmt.Errorf("%w: create %s: %w", ErrIdentity, filepath.Join(dir, KeyFile), err)
	}
	if err := createFile(dir, CertFile, certs); err != nil {
		return fmt.Errorf("%w: create %s: %w", ErrIdentity, filepath.Join(dir, CertFile), err)
	}
	return nil
}

// newIdentity checks that key and chain belong together and name a node.
func newIdentity(key crypto.Signer, chain []*x509.Certificate) (*Identity, error) {
	leaf := chain[0]
	pub, ok := leaf.PublicKey.(interface{ Equal(crypto.PublicKey) bool })
	if !ok || !pub.Equal(key.Public()) {
		return nil, fmt.Errorf("the first certificate is not of the key in %s", KeyFile)
	}
	name, err := certName(leaf)
	if err != nil {
		return nil, err
	}
	c := tls.Certificate{PrivateKey: key, Leaf: leaf}
	for _, cert := range chain {
		c.Certificate = append(c.Certificate, cert.Raw)
	}
	return &Identity{Name: name, Fingerprint: Fingerprint(leaf), Certificate: c}, nil
}

func loadKey(path string) (crypto.Signer, error) {
	data, err := readPEM(path, true)
	if err != nil {
		return nil, err
	}
	return parseKey(data)
}

// createKey makes dir's key. Another process that was faster wins.
func createKey(dir string) error {
	key, err := newKey()
	if err != nil {
		return err
	}
	data, err := encodeKey(key)
	if err != nil {
		return err
	}
	if err := createFile(dir, KeyFile, data); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// createSelfSigned makes a certificate for the key in dir.
func createSelfSigned(dir, node string) error {
	key, err := loadKey(filepath.Join(dir, KeyFile))
	if err != nil {
		return err
	}
	cert, err := selfSign(key, node)
	if err != nil {
		return err
	}
	if err := createFile(dir, CertFile, encodeCerts(cert)); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

func selfSign(key crypto.Signer, node string) (*x509.Certificate, error) {
	tmpl, err := nodeTemplate(node)
	if err != nil {
		return nil, err
	}
	// The year 2000: nobody's clock makes it "not yet valid".
	tmpl.NotBefore = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	tmpl.NotAfter = noExpiry
	return sign(tmpl, tmpl, key.Public(), key)
}

// nodeTemplate is what a node's certificate has whoever signs it.
func nodeTemplate(node string) (*x509.Certificate, error) {
	n, err := serial()
	if err != nil {
		return nil, err
	}
	tmpl := &x509.Certificate{
		SerialNumber: n,
		Subject:      pkix.Name{CommonName: node},
		KeyUsage:     x509.KeyUsageDigitalSignature,
		// A node is both: it dials and accepts.
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true,
	}
	tmpl.URIs = append(tmpl.URIs, nameURI(node))
	return tmpl, nil
}

func sign(tmpl, parent *x509.Certificate, pub crypto.PublicKey, key crypto.Signer) (*x509.Certificate, error) {
	der, err := x509.CreateCertificate(rand.Reader, tmpl, parent, pub, key)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}
