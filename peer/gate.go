package peer

import (
	"net"
	"slices"
	"sync"
)

// Limits of inbound connections.
const (
	// maxHandshaking bounds connections that have not authenticated. Beyond
	// it the oldest goes: an honest handshake takes milliseconds, so the
	// oldest is the one least likely to be one.
	maxHandshaking = 64
	// maxPerPeer bounds one peer's connections: the session, one being
	// replaced, one for questions, and attempts.
	maxPerPeer = 5
	// maxLinks bounds all authenticated inbound connections.
	maxLinks = 1024
)

// gate counts inbound connections.
type gate struct {
	mu          sync.Mutex
	handshaking []*arrival // oldest first
	links       map[string][]*link
	total       int
	closed      bool
}

// arrival is an accepted TCP connection before it has authenticated.
type arrival struct {
	net.Conn
	gate *gate
}

// Close also gives back the place.
func (a *arrival) Close() error {
	a.gate.leave(a)
	return a.Conn.Close()
}

func newGate() *gate { return &gate{links: make(map[string][]*link)} }

// arrive makes room for c, at the cost of the oldest if need be.
func (g *gate) arrive(c net.Conn) *arrival {
	a := &arrival{Conn: c, gate: g}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		c.Close() // its handshake fails at once
		return a
	}
	if len(g.handshaking) >= maxHandshaking {
		g.handshaking[0].Conn.Close() // its handshake fails, and calls leave
		g.handshaking = slices.Delete(g.handshaking, 0, 1)
	}
	g.handshaking = append(g.handshaking, a)
	return a
}

func (g *gate) leave(a *arrival) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if i := slices.Index(g.handshaking, a); i >= 0 {
		g.handshaking = slices.Delete(g.handshaking, i, i+1)
	}
}

// admit counts an authenticated link until it dies. When the peer has too
// many, its oldest without a session goes, one without a question first; false means there is none such.
func (g *gate) admit(l *link) bool {
	g.mu.Lock()
	if g.closed || g.total >= maxLinks {
		g.mu.Unlock()
		return false
	}
	mine := g.links[l.name]
	var oldest *link
	if len(mine) >= maxPerPeer {
		i := slices.IndexFunc(mine, func(o *link) bool { return !o.up.Load() && !o.answering() })
		if i < 0 {
			i = slices.IndexFunc(mine, func(o *link) bool { return !o.up.Load() })
		}
		if i < 0 {
			g.mu.Unlock()
			return false
		}
		oldest = mine[i]
	}
	g.links[l.name] = append(mine, l)
	g.total++
	g.mu.Unlock()
	if oldest != nil {
		oldest.shut() // calls release, so not under the lock
	}
	return true
}

func (g *gate) release(l *link) {
	g.mu.Lock()
	defer g.mu.Unlock()
	mine := g.links[l.name]
	i := slices.Index(mine, l)
	if i < 0 {
		return
	}
	g.total--
	if mine = slices.Delete(mine, i, i+1); len(mine) == 0 {
		delete(g.links, l.name)
	} else {
		g.links[l.name] = mine
	}
}

// close cuts every connection and those that still arrive: a server that stops
// waits for their handshakes.
func (g *gate) close() {
	g.mu.Lock()
	g.closed = true
	var links []*link
	for _, l := range g.links {
		links = append(links, l...)
	}
	for _, a := range g.handshaking {
		a.Conn.Close()
	}
	g.mu.Unlock()
	for _, l := range links {
		l.shut()
	}
}
