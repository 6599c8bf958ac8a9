package peer

import (
	"crypto/sha256"
	"crypto/subtle"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"strings"
)

const fingerprintPrefix = "sha256:"

// Fingerprint is "sha256:" and the hexadecimal SHA-256 of cert's DER-encoded
// SubjectPublicKeyInfo (as RFC 7469, 2.4). It is of the key and not of the
// certificate, so that renewing a certificate, or adding a DNS name to it, does
// not break the peers that pinned it.
func Fingerprint(cert *x509.Certificate) string {
	sum := sha256.Sum256(cert.RawSubjectPublicKeyInfo)
	return fingerprintPrefix + hex.EncodeToString(sum[:])
}

// ParseFingerprint returns s in the form that Fingerprint makes, or an error
// that says what that is. Upper case and surrounding blanks are forgiven.
func ParseFingerprint(s string) (string, error) {
	f := strings.ToLower(strings.TrimSpace(s))
	digits, ok := strings.CutPrefix(f, fingerprintPrefix)
	if raw, err := hex.DecodeString(digits); !ok || err != nil || len(raw) != sha256.Size {
		return "", fmt.Errorf(`%.100q is not a fingerprint: it is "sha256:" and 64 hexadecimal digits, as "mover identity" prints it on the peer`, s)
	}
	return f, nil
}

// sameFingerprint compares in constant time.
func sameFingerprint(a, b string) bool {
	return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1
}
