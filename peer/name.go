package peer

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// MaxName is the longest node name, in bytes: a DNS label's limit, so that
// "{node}:9471" can always be looked up.
const MaxName = 63

// uriScheme is the scheme of the certificate's name: mover://NODE.
const uriScheme = "mover"

// ErrName is wrapped by every error about a node name's syntax.
var ErrName = errors.New("not a node name: use 1 to 63 of a-z, 0-9, '-' and '.', starting and ending with a letter or digit, no two dots in a row")

// ValidName returns nil if name can name a node: 1 to MaxName bytes of
// [a-z0-9.-], first and last a letter or digit, without "..". The ends and the
// dots are as strict as they are because crypto/x509 refuses to parse a
// certificate whose URI has such a host.
func ValidName(name string) error {
	bad := func() error { return fmt.Errorf("%.80q is %w", name, ErrName) }
	if len(name) == 0 || len(name) > MaxName || strings.Contains(name, "..") {
		return bad()
	}
	for i := 0; i < len(name); i++ {
		c := name[i]
		switch {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9':
		case (c == '-' || c == '.') && i > 0 && i < len(name)-1:
		default:
			return bad()
		}
	}
	return nil
}

// nameURI is the subject alternative name of node.
func nameURI(node string) *url.URL { return &url.URL{Scheme: uriScheme, Host: node} }

// certName is the node that cert names. Exactly one mover:// URI is allowed:
// with two, what the peer is called would depend on who looks.
func certName(cert *x509.Certificate) (string, error) {
	name := ""
	for _, u := range cert.URIs {
		if u.Scheme != uriScheme {
			continue
		}
		if name != "" {
			return "", errors.New("the certificate has several mover:// names; issue one with a single name")
		}
		if err := ValidName(u.Host); err != nil {
			return "", fmt.Errorf("the certificate's mover:// name: %w", err)
		}
		if u.String() != uriScheme+"://"+u.Host {
			return "", fmt.Errorf("the certificate's name %.80q is more than mover://NODE", u.String())
		}
		name = u.Host
	}
	if name == "" {
		return "", errors.New(`the certificate has no mover://NODE name; make one with "mover ca issue NODE"`)
	}
	return name, nil
}
