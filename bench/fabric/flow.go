package fabric

import (
	"errors"
	"time"
)

// errAttention: a frame came, or the conversation ended, in the middle.
var errAttention = errors.New("interrupted by the other side")

// quietFor is how long no message must come before what is missing on UC and
// UD counts as lost.
const quietFor = 200 * time.Millisecond

// sendAll is the timed loop: it posts on all lanes while there is room, and
// polls. With a duration it stops posting when that is over.
func (p *poller) sendAll(duration time.Duration) error {
	p.began = p.now()
	until := int64(duration)
	if duration > 0 {
		until += p.began
	}
	var posted uint64
	p.history.begin(mark{at: p.began})
	for {
		for _, n := range p.lanes {
			for {
				count, err := n.tx.post()
				if err != nil {
					return err
				}
				if count == 0 {
					break
				}
				posted += uint64(count)
			}
		}
		n, err := p.poll("sending")
		switch {
		case err != nil:
			return err
		case p.talk.calls():
			return errAttention
		case n == 0:
			continue
		}
		now := p.now()
		if duration > 0 && now >= until {
			for _, n := range p.lanes {
				n.tx.finish()
			}
		}
		completed, all := p.completed()
		if all {
			p.ended = now
			p.history.end(mark{now, posted, completed})
			return nil
		}
		p.history.add(mark{now, posted, completed})
	}
}

func (p *poller) completed() (messages uint64, all bool) {
	all = true
	for _, n := range p.lanes {
		messages += n.tx.completed
		all = all && n.tx.done()
	}
	return messages, all
}

// closeAll sends the closing messages of checked RC writes.
func (p *poller) closeAll() error {
	for _, n := range p.lanes {
		if err := n.tx.close(); err != nil {
			return err
		}
	}
	for _, n := range p.lanes {
		for !n.tx.closed {
			if _, err := p.poll("sending the closing messages"); err != nil {
				return err
			}
			if p.talk.calls() {
				return errAttention
			}
		}
	}
	return nil
}

// receiveAll takes messages until the other side says something.
func (p *poller) receiveAll() error {
	for !p.talk.calls() {
		n, err := p.poll("")
		if err == nil && n > 0 {
			err = p.refill()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (p *poller) refill() error {
	for _, n := range p.lanes {
		if err := n.rx.refill(); err != nil {
			return err
		}
	}
	return nil
}

// collect takes what is still on its way when all of sent (by lane, of all
// pollers) was sent. What does not come is lost, on UC and UD; on RC it is an
// error.
func (p *poller) collect(sent []uint64, lossy bool) error {
	doing := "waiting for the last messages"
	if lossy {
		doing = "" // the silence ends it
	}
	last := p.now()
	for !p.collected(sent) {
		n, err := p.poll(doing)
		if err == nil && n > 0 {
			last = p.now()
			err = p.refill()
		}
		switch {
		case err != nil:
			return err
		case p.talk.calls():
			return errAttention
		case lossy && time.Duration(p.now()-last) > quietFor:
			return nil
		}
	}
	return nil
}

func (p *poller) collected(sent []uint64) bool {
	for _, n := range p.lanes {
		if !n.rx.complete(sent[n.number]) {
			return false
		}
	}
	return true
}
