package peer

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"strings"
	"time"

	"mover/peer/peerpb"
)

// holdUncommitted is how long the node that decides lets a peer's Hello wait
// for a dial of its own that has not got as far. It is more than two handshakes
// take on any network, and less than a dialler waits: if this node cannot reach
// the peer at all, the peer's connection is the one.
const holdUncommitted = time.Second

// pair is what this node has with one peer: at most one session, at most one
// attempt to dial and at most one offer to an inbound Hello. Control.mu guards
// it and everything in it.
//
// Of two nodes that dial each other at once, the lower decides (see
// welcomeOrRefuse). The other never waits, so there is no deadlock, and yields
// its own attempt when an accepted session is established.
type pair struct {
	name    string
	conn    *Conn // established and not ending
	attempt *attempt
	offer   *offer
	held    int       // inbound Hellos that wait for the attempt
	last    sessionID // the latest session, also one that only got a Welcome

	changed chan struct{} // closed and renewed when anything above changes
}

// attempt is one Dial that is going on, for everyone who asked for it.
type attempt struct {
	ctx       context.Context
	cancel    context.CancelFunc
	waiters   int
	committed bool // a Hello is sent, and its fate open
	yielding  bool // it has failed so far, and takes what the peer brings
	resolved  bool
	conn      *Conn
	err       error
	done      chan struct{} // closed when resolved
}

// offer is a Welcome sent that waits for the dialler to link its Items stream.
type offer struct {
	id       sessionID
	link     *link
	version  uint32
	instance string
	linked   chan itemsServer // the Items stream; one place
	ended    chan struct{}    // closed when the offer is taken up or withdrawn
	finished chan struct{}    // closed when the Control handler returns
}

// matches tells, in constant time, whether token is the one offered.
func (o *offer) matches(token []byte) bool {
	return subtle.ConstantTimeCompare(o.id[:], token) == 1
}

// pairOf returns the pair with name. c.mu is held.
func (c *Control) pairOf(name string) *pair {
	p := c.pairs[name]
	if p == nil {
		p = &pair{name: name, changed: make(chan struct{})}
		c.pairs[name] = p
	}
	return p
}

// forget drops p if there is nothing to remember of it, so that dialling names
// that lead nowhere leaves nothing behind. c.mu is held.
func (c *Control) forget(p *pair) {
	if c.pairs[p.name] == p && p.conn == nil && p.attempt == nil && p.offer == nil && p.held == 0 && p.last == (sessionID{}) {
		delete(c.pairs, p.name)
	}
}

// broadcast wakes whoever waits for a change of p. c.mu is held.
func (p *pair) broadcast() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// resolve ends p's attempt a. c.mu is held.
func (p *pair) resolve(a *attempt, conn *Conn, err error) {
	if a.resolved {
		return
	}
	a.resolved, a.conn, a.err = true, conn, err
	if p.attempt == a {
		p.attempt = nil
	}
	a.cancel()
	close(a.done)
	p.broadcast()
}

// withdraw ends p's offer, if there is one. c.mu is held. The link is for the
// Control handler to shut, because that takes other locks.
func (p *pair) withdraw() {
	if p.offer == nil {
		return
	}
	close(p.offer.ended)
	p.offer = nil
	p.broadcast()
}

// lower is the order that decides whose dial wins: by fingerprint, and by name
// between nodes that share a key.
func lower(ownKey, ownName, peerKey, peerName string) bool {
	if n := strings.Compare(ownKey, peerKey); n != 0 {
		return n < 0
	}
	return ownName < peerName
}

// welcomeOrRefuse decides about an inbound Hello: an offer, or a refusal. Both
// are nil when ctx, the stream's, ended meanwhile.
func (c *Control) welcomeOrRefuse(ctx context.Context, l *link, hello *peerpb.Hello, version uint32) (*offer, *peerpb.Refusal) {
	hold := time.NewTimer(holdUncommitted)
	defer hold.Stop()
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.pairOf(l.name)
	waiting, waited := false, false
	defer func() {
		if waiting {
			p.held--
			p.broadcast()
		}
	}()
	for ctx.Err() == nil {
		if c.closed {
			return nil, c.refusal(peerpb.RefusalCode_REFUSAL_CLOSING, "the node is shutting down; try again later")
		}
		if old := p.conn; old != nil {
			if !stale(old, hello) {
				return nil, c.refusal(peerpb.RefusalCode_REFUSAL_DUPLICATE, "session "+old.Session()+" is up")
			}
			c.mu.Unlock()
			old.replaced() // takes itself out of the pair
			c.mu.Lock()
			continue
		}
		if a := p.attempt; a != nil && lower(l.own, c.id.Name, l.key, l.name) && !a.yielding && (a.committed || !waited) {
			if !waiting {
				waiting = true
				p.held++
				p.broadcast()
			}
			changed := p.changed
			c.mu.Unlock()
			select {
			case <-changed:
			case <-hold.C:
				waited = true
			case <-ctx.Done():
			}
			c.mu.Lock()
			continue
		}
		p.withdraw() // the peer tries again, so it has given that up; the handler ends its link
		o := &offer{link: l, version: version, instance: instanceText(hello.GetInstance()),
			linked: make(chan itemsServer, 1), ended: make(chan struct{}), finished: make(chan struct{})}
		_, _ = rand.Read(o.id[:]) // never fails (crypto/rand)
		p.offer = o
		p.broadcast()
		return o, nil
	}
	return nil, nil
}

// stale tells that the peer does not have the session conn any more: it is
// another process now, or says that it ended. A Hello that was on its way when
// the session came up is neither.
func stale(conn *Conn, hello *peerpb.Hello) bool {
	return instanceText(hello.GetInstance()) != conn.info.Instance || string(hello.GetLastSession()) == string(conn.id[:])
}

// establishAccepted makes conn the pair's session, on an offer taken up. False
// means that the offer was withdrawn. With it, one must be added to c.work for
// the Accept callback; that is done here, while Close cannot have passed.
func (c *Control) establishAccepted(o *offer, conn *Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.pairOf(conn.info.Name)
	if c.closed || p.offer != o || !c.stillTrusted(o.link) {
		return false
	}
	p.withdraw()
	p.conn, p.last = conn, conn.id
	p.broadcast()
	c.live[conn] = struct{}{}
	if p.attempt != nil {
		p.resolve(p.attempt, conn, nil)
	}
	c.work.Add(1)
	return true
}

// establishDialled makes conn the pair's session, for attempt a. False means
// that nobody wants it any more.
func (c *Control) establishDialled(a *attempt, conn *Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.pairOf(conn.info.Name)
	if c.closed || a.resolved || a.waiters == 0 || p.conn != nil || !c.stillTrusted(conn.link) {
		return false
	}
	p.withdraw()
	p.conn = conn
	c.live[conn] = struct{}{}
	p.resolve(a, conn, nil)
	return true
}

// stillTrusted judges a link again if there was a reload since its handshake.
// c.mu is held.
func (c *Control) stillTrusted(l *link) bool {
	if l.trust == c.trust {
		return true
	}
	_, err := c.trust.verify(l.chain, l.name, l.usage)
	return err == nil
}

// commit allows attempt a to say Hello. Not if the peer's own connection is
// about to come up, or has: then the attempt waits for that.
func (c *Control) commit(p *pair, a *attempt) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if a.resolved || p.conn != nil || p.offer != nil {
		return errYield
	}
	a.committed = true
	p.broadcast()
	return nil
}

// settle notes that the Hello that commit allowed, if it did, has failed.
func (c *Control) settle(p *pair, a *attempt) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a.committed = false
	p.broadcast()
}

// welcomed notes a session that the peer has from now on, even if this side
// never gets to use it.
func (c *Control) welcomed(p *pair, id sessionID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p.last = id
}

// ending implements owner.
func (c *Control) ending(conn *Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.pairs[conn.info.Name]; p != nil && p.conn == conn {
		p.conn = nil
	}
}

// ended implements owner.
func (c *Control) ended(conn *Conn) {
	c.mu.Lock()
	delete(c.live, conn)
	c.mu.Unlock()
	// That the session ended is the owner's to tell, who knows why.
	c.cfg.Logger.Debug("control connection closed", "peer", conn.info.Name, "session", conn.Session(), "error", conn.cause.Error())
}
