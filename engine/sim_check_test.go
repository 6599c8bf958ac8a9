package engine

import (
	"fmt"
	"strings"

	"mover/reason"
	"mover/verbs"
	"mover/verbs/sim"
)

// check recounts what a poller's groups account for.
func (p *simPoller) check() {
	for _, g := range p.groups {
		if !g.closing {
			g.checkCounts(p.side.w)
		}
	}
}

func (g *group) checkCounts(w *world) {
	window := map[*lane]int{}
	inFlight := map[*groupRail]int64{}
	used := 0
	var local, remote [classes]int
	for i := range g.local {
		if c := g.local[i].chunk; c != nil {
			local[c.class]++
		}
	}
	for i := range g.remote {
		r := &g.remote[i]
		if r.local < 0 {
			continue
		}
		used++
		remote[g.local[r.local].chunk.class]++
		s := &g.local[r.local]
		if s.remote != int32(i) || s.credited {
			w.broken(counted, "group %d: remote slot %d holds %d, which holds %d", g.id, i, r.local, s.remote)
		}
		window[s.lane]++
		inFlight[s.lane.rail] += int64(s.bytes)
	}
	for c := range g.lots {
		if l := &g.lots[c]; l.local != local[c] || l.remote != remote[c] || l.local > l.maxLocal || l.remote > l.maxRemote {
			w.broken(counted, "group %d class %d: %d local and %d remote slots counted, %d of %d and %d of %d used", g.id, c, l.local, l.remote, local[c], l.maxLocal, remote[c], l.maxRemote)
		}
	}
	if used+len(g.freeRemote) != len(g.remote) {
		w.broken(counted, "group %d: %d remote slots used, %d free of %d", g.id, used, len(g.freeRemote), len(g.remote))
	}
	posted := map[*lane]int{}
	for i := range g.local {
		if s := &g.local[i]; s.lane != nil && !s.done {
			posted[s.lane]++
		}
	}
	for _, s := range g.sending {
		if s == nil {
			continue
		}
		posted[s.lane] += s.inFlight
		if s.lane != nil && !s.acked {
			window[s.lane] += s.wrs
			inFlight[s.lane.rail] += int64(len(s.memory))
		}
	}
	if posted[nil] != 0 {
		w.broken(counted, "group %d: queued segments have %d chunks in flight", g.id, posted[nil])
	}
	for _, l := range g.data {
		if (l.state == laneUp || l.state == laneDraining && !l.gone && !l.connection.out) && l.sends < posted[l] {
			w.broken(counted, "group %d lane %d: %d sends outstanding, slots and segments wait for %d", g.id, l.index, l.sends, posted[l])
		}
		if l.state == laneUp && l.window != window[l] {
			w.broken(counted, "group %d lane %d: window %d, counted %d", g.id, l.index, l.window, window[l])
		}
		if l.window > l.depth && l.state == laneUp || l.sends > l.sendCap || l.recvs > l.recvCap {
			w.broken(counted, "group %d lane %d: window %d of %d, %d sends, %d receives", g.id, l.index, l.window, l.depth, l.sends, l.recvs)
		}
	}
	for _, r := range g.rails {
		if r.inFlight != inFlight[r] {
			w.broken(counted, "group %d rail %d: %d bytes in flight, counted %d", g.id, r.index, r.inFlight, inFlight[r])
		}
	}
}

// settled reports whether nothing is on its way in a session that is up.
func (w *world) settled() bool {
	if w.now() < w.calmAt || !w.isUp() {
		return false
	}
	for _, s := range w.sides {
		for _, g := range s.session.groups {
			if len(g.freeRemote) != len(g.remote) || g.owed.n != 0 || g.ops != 0 {
				return false
			}
			for _, l := range g.lanes {
				if l != nil && l.sends != 0 {
					return false
				}
			}
		}
	}
	return len(w.sides[0].session.inFlight)+len(w.sides[1].session.inFlight) == 0
}

// checkQuiet is for a session that is up with nothing to do: every slot is
// free again, every credit has arrived, every segment is forgotten.
func (w *world) checkQuiet() {
	for _, s := range w.sides {
		se := s.session
		if len(se.inFlight) != 0 || len(se.sending) != 0 || len(se.receiving) != 0 || len(se.inbox.items) != 0 || se.auxOut != 0 ||
			len(se.auxWaiting) != 0 || len(se.keep) != 0 || len(se.unsent) != 0 {
			w.broken(counted, "%s: %d chunks, %d sending, %d receiving, %d in the inbox, %d aux ops, %d commands, %d messages left",
				s.host, len(se.inFlight), len(se.sending), len(se.receiving), len(se.inbox.items), se.auxOut, len(se.keep), len(se.unsent))
		}
		for _, g := range se.groups {
			g.checkCounts(w)
			if len(g.freeRemote) != len(g.remote) || len(g.freeLocal) != len(g.local) || g.lots[bulk].loaded.n+g.lots[express].loaded.n+g.owed.n+g.queued.n+g.ops != 0 {
				w.broken(counted, "%s group %d: free %d/%d remote, %d/%d local; %d loaded, %d owed, %d queued, %d ops", s.host, g.id,
					len(g.freeRemote), len(g.remote), len(g.freeLocal), len(g.local), g.lots[bulk].loaded.n+g.lots[express].loaded.n, g.owed.n, g.queued.n, g.ops)
			}
			if len(g.freeSegs) != segmentTable {
				w.broken(counted, "%s group %d: %d of %d segment entries free", s.host, g.id, len(g.freeSegs), segmentTable)
			}
			for i := range g.sent {
				if g.sent[i] != nil || g.sending[i] != nil || g.table[i].granted {
					w.broken(counted, "%s group %d: segment %d is not forgotten", s.host, g.id, i)
				}
			}
			for _, l := range g.lanes {
				if l != nil && l.state == laneUp && (l.window != 0 || l.sends != 0 || l.recvs != l.recvCap) {
					w.broken(counted, "%s lane %d: window %d, %d sends, %d of %d receives", s.host, l.index, l.window, l.sends, l.recvs, l.recvCap)
				}
			}
		}
		// Both ends agree on every slot's generation.
		for _, g := range se.groups {
			peer := w.sides[1-s.index].session.groups[g.id]
			for i := range g.remote {
				if g.remote[i].generation != peer.recv[i].generation {
					w.broken(agreed, "%s group %d slot %d: generation %d here, %d there", s.host, g.id, i, g.remote[i].generation, peer.recv[i].generation)
				}
			}
		}
	}
}

// isUp reports whether both sides have every lane.
func (w *world) isUp() bool {
	for _, s := range w.sides {
		if s.session.phase != phaseUp || len(s.session.lanes) == 0 {
			return false
		}
		for _, l := range s.session.lanes {
			if !l.ready {
				return false
			}
		}
	}
	return true
}

func (w *world) allDone() bool {
	for _, i := range w.items {
		if i.done == 0 {
			return false
		}
	}
	return true
}

func (w *world) bothEnded() bool { return w.sides[0].ended && w.sides[1].ended }

// close ends the session from one side and checks that nothing is left.
func (w *world) close() {
	w.sides[w.rng.IntN(2)].session.Close(nil)
	w.finish()
}

// finish waits for both ends and checks what they left behind.
func (w *world) finish() {
	limit := 60 * s1
	if w.hangs {
		limit = 200 * s1 // a session outlives who uses its memory
	}
	if !w.runUntil("the end of the session", limit, w.bothEnded) {
		return
	}
	w.runFor(50 * ms) // what arrives too late must find nothing
	for _, i := range w.items {
		i.checkItem()
	}
	for _, s := range w.sides {
		if s.leases != 0 {
			w.broken(returned, "%s: %d leases not released", s.host, s.leases)
		}
		for i, p := range s.pollers {
			if n := p.work.reserved.Load(); n != 0 || len(p.groups) != 0 || p.work.Len() != 0 {
				w.broken(returned, "%s poller %d: %d ops reserved, %d groups, %d ops queued", s.host, i, n, len(p.groups), p.work.Len())
			}
			if n := p.stats.Lanes.Load(); n != 0 {
				w.broken(returned, "%s poller %d: counts %d lanes", s.host, i, n)
			}
			for _, ch := range s.chans[i] {
				if err := ch.Destroy(); err != nil {
					w.broken(returned, "%s: destroying a channel: %v", s.host, err)
				}
			}
		}
		if se := s.session; len(se.inFlight)+len(se.sending)+len(se.receiving)+len(se.inbox.items) != 0 {
			w.broken(returned, "%s: the session still holds items", s.host)
		}
		for _, r := range s.session.Rails() {
			if n := r.LanesUp.Load(); n != 0 {
				w.broken(returned, "%s: rail counts %d lanes up", s.host, n)
			}
		}
		for _, ctx := range s.ctxs {
			if c := ctx.Counts(); c != (verbs.Counts{}) {
				w.broken(returned, "%s: left open: %+v", s.host, c)
			} else if err := ctx.Close(); err != nil {
				w.broken(returned, "%s: closing a device: %v", s.host, err)
			}
		}
	}
}

// verdict reports what the world found.
func (w *world) verdict(replay string) {
	w.tb.Helper()
	for _, v := range w.f.Violations()[w.reported:] {
		if !w.tolerate[v.Kind] && !(v.Kind == sim.StaleQP && w.flapped(int64(v.At))) {
			w.broken(byVerbs, "verbs: %v", v)
		}
	}
	if len(w.problems) == 0 {
		return
	}
	w.tb.Errorf("seed %d, %+v:\n%s\nlog:\n%s\nreplay: %s", w.seed, w.cfgText(), strings.Join(w.problems, "\n"), strings.Join(append(w.log, w.storms...), "\n"), replay)
}

func (w *world) cfgText() string {
	c := w.cfg
	return fmt.Sprintf("rails %d pollers %v lanes %d depth %d payload %d segment %d rate %d", c.rails, c.pollers, c.lanes, c.depth, c.payload, c.segment, c.rateBits)
}

// flapped reports whether a port went down so shortly before that the engine
// can't have known.
func (w *world) flapped(at int64) bool {
	for _, f := range w.flaps {
		if at >= f && at < f+30*ms {
			return true
		}
	}
	return false
}

// retryable fails the run for an item that ended for a reason which would
// not be tried again.
func (i *simItem) expect(codes ...reason.Code) {
	if i.result.Err == nil {
		if len(codes) > 0 && codes[0] != "" {
			i.w.problem("item %d: done, want %v", i.index, codes)
		}
		return
	}
	for _, c := range codes {
		if i.result.Err.Code == c {
			return
		}
	}
	i.w.problem("item %d: %v, want %v", i.index, i.result.Err, codes)
}
