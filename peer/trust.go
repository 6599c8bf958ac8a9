package peer

import (
	"crypto/x509"
	"errors"
	"fmt"
	"time"
)

// MaxAddresses bounds the control addresses of one peer, so that a Dial that
// finds none of them alive still ends.
const MaxAddresses = 16

// Trust says which peers there are and why they are believed. Control keeps
// the maps and slices it is given: do not change them afterwards.
type Trust struct {
	// Peers are the peers known by name.
	Peers map[string]PeerConfig
	// Addresses are the control addresses of every peer that names none of its
	// own; "{node}" stands for the peer's name. With a CAFile they also make
	// peers reachable that Peers does not list.
	Addresses []string
	// CAFile holds the certificates (PEM) whose signature makes a peer without
	// a Fingerprint believed; "" for none.
	CAFile string
}

// PeerConfig is one peer.
type PeerConfig struct {
	// Addresses are tried in turn; "{node}" stands for the peer's name, and a
	// missing port is DefaultPort. At most MaxAddresses.
	Addresses []string
	// Fingerprint pins the peer's key (see Fingerprint). A pinned peer is
	// believed by its pin alone, whether or not there is a CAFile.
	Fingerprint string
}

// trust is a checked Trust. It is immutable; a reload makes another.
type trust struct {
	peers    map[string]trustedPeer
	patterns []string
	roots    *x509.CertPool // nil without a CA
	self     string         // this node: the texts are also read on the peer
	now      func() time.Time
}

type trustedPeer struct {
	addresses   []string
	fingerprint string
}

func newTrust(t Trust, self string, now func() time.Time) (*trust, error) {
	out := &trust{peers: make(map[string]trustedPeer, len(t.Peers)), patterns: t.Addresses, self: self, now: now}
	if t.CAFile != "" {
		data, err := readPEM(t.CAFile, false)
		if err != nil {
			return nil, fmt.Errorf(`%w: read the CA file: %w; name the ca.crt that "mover ca init" made`, ErrCA, err)
		}
		certs, err := parseCerts(data)
		if err != nil {
			return nil, fmt.Errorf(`%w: CA file %s: %w; name the ca.crt that "mover ca init" made`, ErrCA, t.CAFile, err)
		}
		out.roots = x509.NewCertPool()
		for _, c := range certs {
			if !c.IsCA {
				return nil, fmt.Errorf(`%w: CA file %s holds the certificate of %q, which is not a CA's; name the ca.crt that "mover ca init" made`, ErrCA, t.CAFile, c.Subject.CommonName)
			}
			out.roots.AddCert(c)
		}
	}
	if _, err := expandAddresses(t.Addresses, "node"); err != nil {
		return nil, fmt.Errorf("addresses of peers: %w", err)
	}
	if len(t.Addresses) > MaxAddresses {
		return nil, fmt.Errorf("addresses of peers: %d of them; at most %d are tried, remove some", len(t.Addresses), MaxAddresses)
	}
	for name, p := range t.Peers {
		tp, err := out.checkPeer(name, p)
		if err != nil {
			return nil, fmt.Errorf("peer %.80q: %w", name, err)
		}
		out.peers[name] = tp
	}
	return out, nil
}

func (t *trust) checkPeer(name string, p PeerConfig) (tp trustedPeer, err error) {
	if err := ValidName(name); err != nil {
		return tp, err
	}
	patterns := p.Addresses
	if len(patterns) == 0 {
		patterns = t.patterns
	}
	if len(patterns) > MaxAddresses {
		return tp, fmt.Errorf("%d addresses; at most %d are tried, remove some", len(patterns), MaxAddresses)
	}
	if tp.addresses, err = expandAddresses(patterns, name); err != nil {
		return tp, err
	}
	switch {
	case p.Fingerprint != "":
		if tp.fingerprint, err = ParseFingerprint(p.Fingerprint); err != nil {
			return tp, err
		}
	case t.roots == nil:
		return tp, errors.New(`nothing says how to recognise it; set its fingerprint (run "mover identity" there), or a CA file for all peers`)
	}
	return tp, nil
}

// addresses returns where to dial name.
func (t *trust) addresses(name string) ([]string, error) {
	p, ok := t.peers[name]
	if ok && len(p.addresses) > 0 {
		return p.addresses, nil
	}
	if !ok && t.roots != nil && len(t.patterns) > 0 {
		return expandAddresses(t.patterns, name)
	}
	if !ok {
		return nil, fmt.Errorf(`%w %q; add it to the configuration: peers: {%q: {addresses: ["%s:%d"], fingerprint: "sha256:..."}} (run "mover identity" there for the fingerprint)`,
			ErrUnknownPeer, name, name, name, DefaultPort)
	}
	return nil, fmt.Errorf(`%w: %q has no control address; add one to the configuration: peers: {%q: {addresses: ["%s:%d"]}}`,
		ErrUnknownPeer, name, name, name, DefaultPort)
}

// verify decides whether the holder of chain (proved by TLS) is a peer, and
// which. want is the name dialled, "" for a connection accepted; usage is the
// role the peer has in it. The error is a *RefusedError without an address.
func (t *trust) verify(chain []*x509.Certificate, want string, usage x509.ExtKeyUsage) (name string, err error) {
	if len(chain) == 0 {
		return "", &RefusedError{Peer: want, Err: ErrUntrusted, Detail: "it presented no certificate"}
	}
	leaf := chain[0]
	fp := Fingerprint(leaf)
	name, err = certName(leaf)
	if err != nil {
		return "", &RefusedError{Peer: want, Err: ErrWrongName, Detail: fmt.Sprintf("%v (fingerprint %s)", err, fp)}
	}
	if want != "" && name != want {
		return "", &RefusedError{Peer: want, Err: ErrWrongName, Detail: fmt.Sprintf(
			"the node there is %q (fingerprint %s), not %q; correct the addresses of %q, or the name", name, fp, want, want)}
	}
	p, known := t.peers[name]
	switch {
	case known && p.fingerprint != "":
		if !sameFingerprint(p.fingerprint, fp) {
			return "", &RefusedError{Peer: name, Err: ErrUntrusted, Detail: fmt.Sprintf(
				`%q presented the fingerprint %s, but %s is configured; if its key was replaced on purpose (compare with "mover identity" there), set on %q: %s; if not, someone is in between`,
				name, fp, p.fingerprint, t.self, snippet(name, fp, false))}
		}
		return name, nil
	case t.roots != nil:
		return name, t.verifyChain(name, fp, chain, usage)
	}
	return "", &RefusedError{Peer: name, Err: ErrUntrusted, Detail: fmt.Sprintf(
		`%q with fingerprint %s is not a configured peer of %q; if it should be (compare with "mover identity" there), add on %q: %s`,
		name, fp, t.self, t.self, snippet(name, fp, true))}
}

// verifyChain checks a certificate against the CA.
func (t *trust) verifyChain(name, fp string, chain []*x509.Certificate, usage x509.ExtKeyUsage) error {
	leaf, now := chain[0], t.now()
	opts := x509.VerifyOptions{Roots: t.roots, Intermediates: x509.NewCertPool(), CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{usage}}
	for _, c := range chain[1:] {
		opts.Intermediates.AddCert(c)
	}
	_, err := leaf.Verify(opts)
	if err == nil {
		return nil
	}
	refuse := func(kind error, format string, args ...any) error {
		return &RefusedError{Peer: name, Err: kind, Detail: fmt.Sprintf(format, args...)}
	}
	var invalid x509.CertificateInvalidError
	switch {
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired && now.Before(invalid.Cert.NotBefore):
		return refuse(ErrExpired, "the certificate of %q (fingerprint %s) is not valid before %s, and it is %s on %q; correct the clock there or on the CA's host",
			name, fp, date(invalid.Cert.NotBefore), date(now), t.self)
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return refuse(ErrExpired, `the certificate of %q (fingerprint %s) expired on %s, and it is %s on %q; issue a new one with "mover ca issue %s", or correct the clock`,
			name, fp, date(invalid.Cert.NotAfter), date(now), t.self, name)
	case errors.As(err, &invalid) && invalid.Reason == x509.IncompatibleUsage:
		return refuse(ErrUntrusted, `the certificate of %q (fingerprint %s) does not allow this use; it needs both client and server authentication: issue it with "mover ca issue %s"`,
			name, fp, name)
	}
	return refuse(ErrUntrusted, `the certificate of %q (fingerprint %s) is not of the CA that %q trusts (%v); issue it with that CA, or pin it on %q (compare with "mover identity" there): %s`,
		name, fp, t.self, err, t.self, snippet(name, fp, true))
}

// snippet is the configuration that would make the peer trusted. Both values
// are checked before they get here, so that nothing a stranger presents can
// shape what an operator pastes.
func snippet(name, fp string, withAddress bool) string {
	if withAddress {
		return fmt.Sprintf(`peers: {%q: {addresses: ["%s:%d"], fingerprint: %q}}`, name, name, DefaultPort, fp)
	}
	return fmt.Sprintf(`peers: {%q: {fingerprint: %q}}`, name, fp)
}
