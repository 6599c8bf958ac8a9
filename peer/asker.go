package peer

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"

	"mover/peer/peerpb"
	"mover/reason"
)

// maxAskers bounds the connections that are kept for questions.
const maxAskers = 128

// asker is a connection to a peer for questions alone, made when there is no
// session that this node dialled. It is kept while it is used, and for
// Config.QuestionIdle. Control.mu guards what is not said to be otherwise.
type asker struct {
	name  string
	ready chan struct{} // closed when the dial has ended; err is written before
	err   error

	link    *link // nil until the dial has succeeded
	cc      *grpc.ClientConn
	client  peerpb.PeerClient // set before ready is closed
	users   int
	dropped bool // not in Control.askers any more
	used    time.Time
	idle    *time.Timer
}

// close ends the connection. Control.mu is not held; the dial has ended, and
// the asker is dropped.
func (a *asker) close() {
	a.link.shut()
	a.cc.Close()
}

// dead tells a connection that is lost.
func (a *asker) dead() bool {
	select {
	case <-a.link.dead:
		return true
	default:
		return false
	}
}

// dropAskers takes the connections that are up, and for which drop says so, out
// of use. Control.mu is held; the caller closes them, questions on them fail.
func (c *Control) dropAskers(drop func(*asker) bool) []*asker {
	var out []*asker
	for name, a := range c.askers {
		if a.link == nil || !drop(a) {
			continue
		}
		delete(c.askers, name)
		a.dropped = true
		a.idle.Stop()
		out = append(out, a)
	}
	return out
}

// borrow returns a connection to the peer name, for give. It is made if there
// is none; those who come meanwhile wait for the same.
func (c *Control) borrow(ctx context.Context, name string, addrs []string) (*asker, error) {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil, reason.New(reason.PeerUnreachable, "ask %q: %w", name, ErrShutdown)
	}
	lost := c.dropAskers(func(a *asker) bool { return a.dead() || !c.stillTrusted(a.link) })
	a := c.askers[name]
	if a == nil && len(c.askers) >= maxAskers {
		lost = append(lost, c.dropIdlest()...)
	}
	full := a == nil && len(c.askers) >= maxAskers
	if a == nil && !full {
		a = &asker{name: name, ready: make(chan struct{})}
		c.askers[name] = a
		c.work.Go(func() { c.dialAsker(a, addrs) })
	}
	if !full {
		a.users++
	}
	c.mu.Unlock()
	for _, l := range lost {
		l.close()
	}
	if full {
		return nil, reason.New(reason.PeerRefused, "ask %q: %w: %d peers are being asked; try again", name, ErrBusy, maxAskers)
	}
	select {
	case <-a.ready:
		if a.err != nil {
			return nil, a.err
		}
		return a, nil
	case <-ctx.Done():
		c.give(a)
		return nil, reason.New(reason.PeerUnreachable, "ask %q: no connection yet: %w", name, timely(ctx, ctx.Err()))
	}
}

// dropIdlest drops the connection that is idle for longest, if one is idle.
// Control.mu is held.
func (c *Control) dropIdlest() []*asker {
	var oldest *asker
	for _, a := range c.askers {
		if a.link != nil && a.users == 0 && (oldest == nil || a.used.Before(oldest.used)) {
			oldest = a
		}
	}
	return c.dropAskers(func(a *asker) bool { return a == oldest })
}

// dialAsker carries the dial of a to its end. It is the Control's and not one
// asker's, so that one who gives up does not fail the others.
func (c *Control) dialAsker(a *asker, addrs []string) {
	var l *link
	var cc *grpc.ClientConn
	err := c.inTurn(c.ctx, a.name, addrs, func(ctx context.Context, addr string) (err error) {
		if l, err = c.dialLink(ctx, addr, a.name); err != nil {
			return err
		}
		if cc, err = newClient(l, c.cfg.Keepalive, c.cfg.KeepaliveTimeout); err != nil {
			l.shut()
			return fmt.Errorf("%s: %w", addr, err)
		}
		return nil
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil && c.closed {
		l.shut()
		cc.Close()
		err = reason.New(reason.PeerUnreachable, "ask %q: %w", a.name, ErrShutdown)
	}
	if a.err = err; err != nil {
		delete(c.askers, a.name)
	} else {
		a.link, a.cc, a.client, a.used = l, cc, peerpb.NewPeerClient(cc), c.now()
		a.idle = time.AfterFunc(c.cfg.QuestionIdle, func() { c.retire(a) })
	}
	close(a.ready)
}

// give ends what borrow began.
func (c *Control) give(a *asker) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a.used = c.now()
	if a.users--; a.users == 0 && a.link != nil && !a.dropped {
		a.idle.Reset(c.cfg.QuestionIdle)
	}
}

// retire closes a connection that was idle.
func (c *Control) retire(a *asker) {
	c.mu.Lock()
	lost := c.dropAskers(func(b *asker) bool { return b == a && a.users == 0 })
	c.mu.Unlock()
	for _, l := range lost {
		l.close()
	}
}
