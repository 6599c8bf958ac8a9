package node

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"time"
)

// certificateEnds are when the first of the certificates in use expires, by
// what they are for: "node", "api" if it has its own, "ca" if there is a file
// of them.
func (n *Node) certificateEnds() map[string]time.Time {
	ends := map[string]time.Time{}
	note := func(name string, chain [][]byte) {
		if end, ok := firstEnd(chain); ok {
			ends[name] = end
		}
	}
	note("node", n.identity.Load().Certificate.Certificate)
	if n.web != nil { // else New has not got so far
		if cert := n.web.cert.Load(); cert != nil {
			note("api", cert.Certificate)
		}
	}
	if end := n.caEnd.Load(); end != nil {
		ends["ca"] = *end
	}
	return ends
}

// noteCA reads from the file of CAs that was just taken over when the first of
// them expires: the file may change long before the next reload, and what is
// in use counts. file is "" without one.
func (n *Node) noteCA(file string) error {
	n.caEnd.Store(nil)
	if file == "" {
		return nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("read when the CA expires: %w", err)
	}
	var all [][]byte
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			break
		}
		if block.Type == "CERTIFICATE" {
			all = append(all, block.Bytes)
		}
	}
	if end, ok := firstEnd(all); ok {
		n.caEnd.Store(&end)
	}
	return nil
}

// firstEnd is when the first of some certificates (DER) expires; false if none
// can be read.
func firstEnd(certificates [][]byte) (end time.Time, ok bool) {
	for _, der := range certificates {
		c, err := x509.ParseCertificate(der)
		if err != nil {
			continue
		}
		if !ok || c.NotAfter.Before(end) {
			end, ok = c.NotAfter, true
		}
	}
	return end, ok
}
