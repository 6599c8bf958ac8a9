package datapath

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"mover/verbs"
)

// eventReaders read the devices' asynchronous events, one goroutine a device:
// the event is acknowledged before anyone takes a lock.
type eventReaders struct {
	stopping atomic.Bool
	done     sync.WaitGroup
}

func startEventReaders(p *Path) *eventReaders {
	r := &eventReaders{}
	for _, d := range p.devices {
		r.done.Add(1)
		go r.read(p, d)
	}
	return r
}

func (r *eventReaders) read(p *Path, d *openDevice) {
	defer r.done.Done()
	for !r.stopping.Load() {
		e, err := d.ctx.GetAsyncEvent(200 * time.Millisecond)
		switch {
		case errors.Is(err, verbs.ErrTimeout):
		case err != nil:
			if !r.stopping.Load() && !errors.Is(err, verbs.ErrClosed) {
				p.log.Error("asynchronous events can't be read any more; its rails are given up", "device", d.info.Name, "error", err)
				p.links.each(func(l *Link) { l.session.PortEvent(d.ctx, verbs.AsyncEvent{Type: verbs.EventDeviceFatal}) })
			}
			return
		default:
			level := slog.LevelWarn
			if e.Type == verbs.EventQPFatal || e.Type == verbs.EventQPReqErr {
				level = slog.LevelDebug // of one lane, which tells itself when it is down
			}
			p.log.Log(context.Background(), level, "asynchronous event", "device", d.info.Name, "event", e.Type.String(), "qpn", e.QPN, "port", e.Port)
			p.links.each(func(l *Link) { l.session.PortEvent(d.ctx, e) })
		}
	}
}

func (r *eventReaders) stop() {
	r.stopping.Store(true)
	r.done.Wait()
}
