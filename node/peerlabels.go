package node

import "sync"

// maxPeerLabels bounds the values of the label peer.
const maxPeerLabels = 1024

// otherPeer stands for the peers that have no label of their own.
const otherPeer = "other"

// peerLabels decides which peers have a label of their own: those that are
// listed in the configuration, or proved who they are, up to maxPeerLabels. A
// job may name any node where a CA vouches for peers, and what users make up
// must not become series.
type peerLabels struct {
	listed func(name string) bool

	mu    sync.Mutex
	known map[string]struct{}
}

func newPeerLabels(listed func(string) bool) *peerLabels {
	return &peerLabels{listed: listed, known: map[string]struct{}{}}
}

// of is the label of a peer; proved says that its certificate has the name. A
// label that was given stays.
func (p *peerLabels) of(name string, proved bool) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.known[name]; ok {
		return name
	}
	if len(p.known) >= maxPeerLabels || !proved && !p.listed(name) {
		return otherPeer
	}
	p.known[name] = struct{}{}
	return name
}
