package peer

import (
	"crypto"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"path/filepath"
	"time"
)

// The files of a CA's directory. CACertFile is what every node's configuration
// names; CAKeyFile stays offline.
const (
	CAKeyFile  = "ca.key"
	CACertFile = "ca.crt"
)

const (
	caValidity = 10 * 365 * 24 * time.Hour
	// clockSlack is how far in the past a certificate starts, for nodes whose
	// clock is behind the CA's.
	clockSlack = time.Hour
)

// ErrCA is wrapped by every error about a CA's files.
var ErrCA = errors.New("certificate authority")

// InitCA creates a certificate authority in dir: a key (0600) and a
// certificate valid for ten years, which can sign node certificates and no
// other CA. It fails with fs.ErrExist if dir has one.
func InitCA(dir string) error {
	if err := makeDir(dir); err != nil {
		return fmt.Errorf("%w: create %s: %w", ErrCA, dir, err)
	}
	keyPath, certPath := filepath.Join(dir, CAKeyFile), filepath.Join(dir, CACertFile)
	noKey, err := absent(keyPath)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrCA, err)
	}
	noCert, err := absent(certPath)
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", ErrCA, err)
	case !noCert:
		return fmt.Errorf("%w: %s: %w; it is not replaced, because every certificate it issued would stop working: use it, or choose another directory",
			ErrCA, certPath, fs.ErrExist)
	case !noKey:
		return fmt.Errorf("%w: %s: %w without its certificate, as an interrupted run leaves it; remove it and run again",
			ErrCA, keyPath, fs.ErrExist)
	}
	key, err := newKey()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrCA, err)
	}
	n, err := serial()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrCA, err)
	}
	now := time.Now()
	tmpl := &x509.Certificate{
		SerialNumber:          n,
		Subject:               pkix.Name{CommonName: "mover CA " + fmt.Sprintf("%032x", n)[:8]},
		NotBefore:             now.Add(-clockSlack),
		NotAfter:              now.Add(caValidity),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}
	cert, err := sign(tmpl, tmpl, key.Public(), key)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrCA, err)
	}
	data, err := encodeKey(key)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrCA, err)
	}
	// The certificate last: InitCA is complete when it is there.
	if err := createFile(dir, CAKeyFile, data); err != nil {
		return fmt.Errorf("%w: create %s: %w", ErrCA, keyPath, err)
	}
	if err := createFile(dir, CACertFile, encodeCerts(cert)); err != nil {
		return fmt.Errorf("%w: create %s: %w", ErrCA, certPath, err)
	}
	return nil
}

// Issue makes a new key and a certificate for node, signed by the CA in caDir
// and valid from an hour ago until validity from now. dns and ips are further
// names, for the node's HTTP API. Nothing is written: Identity.Save does that.
func Issue(caDir, node string, dns []string, ips []net.IP, validity time.Duration) (*Identity, error) {
	now := time.Now()
	return issue(caDir, node, dns, ips, now.Add(-clockSlack), now.Add(validity))
}

func issue(caDir, node string, dns []string, ips []net.IP, from, until time.Time) (*Identity, error) {
	if err := ValidName(node); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCA, err)
	}
	if !until.After(from) {
		return nil, fmt.Errorf("%w: a certificate valid from %s until %s is never valid; choose a validity above 0", ErrCA, date(from), date(until))
	}
	caCert, caKey, err := loadCA(caDir)
	if err != nil {
		return nil, err
	}
	if until.After(caCert.NotAfter) {
		return nil, fmt.Errorf("%w: a certificate until %s would outlive the CA, which ends %s; choose a shorter validity or make a new CA",
			ErrCA, date(until), date(caCert.NotAfter))
	}
	tmpl, err := nodeTemplate(node)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCA, err)
	}
	tmpl.NotBefore, tmpl.NotAfter = from, until
	tmpl.DNSNames, tmpl.IPAddresses = dns, ips
	key, err := newKey()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCA, err)
	}
	cert, err := sign(tmpl, caCert, key.Public(), caKey)
	if err != nil {
		return nil, fmt.Errorf("%w: sign the certificate of %q: %w; check the DNS names and addresses", ErrCA, node, err)
	}
	return newIdentity(key, []*x509.Certificate{cert})
}

func loadCA(dir string) (*x509.Certificate, crypto.Signer, error) {
	keyPath, certPath := filepath.Join(dir, CAKeyFile), filepath.Join(dir, CACertFile)
	fail := func(err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf(`%w: %w; make one with "mover ca init", or name its directory`, ErrCA, err)
		}
		return fmt.Errorf("%w: in %s: %w; restore the directory from a backup", ErrCA, dir, err)
	}
	key, err := loadKey(keyPath)
	if err != nil {
		return nil, nil, fail(err)
	}
	data, err := readPEM(certPath, false)
	if err != nil {
		return nil, nil, fail(err)
	}
	certs, err := parseCerts(data)
	if err != nil {
		return nil, nil, fail(err)
	}
	if !certs[0].IsCA {
		return nil, nil, fail(fmt.Errorf("%s is not the certificate of a CA", CACertFile))
	}
	return certs[0], key, nil
}

// date is how certificates' times are shown.
func date(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 MST") }
