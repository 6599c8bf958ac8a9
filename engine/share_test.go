package engine

import (
	"strings"
	"testing"

	"mover/reason"
	"mover/verbs/sim"
)

// TestSimShareInRegions: a device that registers little at once takes a share
// in several MRs, and the peer writes to each; the other side has its share
// whole, or in others.
func TestSimShareInRegions(t *testing.T) {
	most := 0
	seeds(t, 40, func(t *testing.T, seed uint64, replay string) {
		w := newWorld(t, seed, func(c *worldConfig) {
			c.segment = c.payload // Direct memory is split too, between segments
			limit := uint64(c.payload+MaxTrailerBytes)*(1+seed%9) + seed%3
			c.device = func(d *sim.Device) { d.MaxMRSize = limit }
		})
		if w.runUntil("up", 5*s1, w.isUp) {
			for k, g := range w.sides[1].session.groups {
				n := regionsOf(g.slots, g.cfg.localShift)
				most = max(most, n)
				other := w.sides[0].session.groups[k]
				if n < 2 || other.cfg.remoteShift != g.cfg.localShift || other.cfg.localShift != wholeShare {
					w.problem("group %d: %d regions, shifts %d and %d, the peer's own %d", k, n, g.cfg.localShift, other.cfg.remoteShift, other.cfg.localShift)
				}
			}
			w.drawItems(6, 4<<20, nil) // more than a share: every slot is used
			w.moved(Staged, 8<<20)
			w.moved(Direct, 1<<20)
			w.runUntil("the items", 200*s1, w.allDone)
			w.close()
		}
		w.verdict(replay)
	})
	if most < 64 {
		t.Errorf("at most %d regions", most)
	}
}

// TestSimShareTooSmallMR: a device that can't register a slot is named.
func TestSimShareTooSmallMR(t *testing.T) {
	w := newWorld(t, 1, func(c *worldConfig) {
		c.rails, c.payload, c.segment = 1, 65536, 65536
		c.device = func(d *sim.Device) { d.MaxMRSize = 4096 }
	})
	w.runUntil("refused", 5*s1, w.bothEnded)
	if why := w.sides[1].why; why == nil || why.Code != reason.PeerRefused || !strings.Contains(why.Detail, "device sim0 registers at most 4096 bytes") ||
		!strings.Contains(why.Detail, "lower session.slot_payload") {
		t.Errorf("%v", why)
	}
	w.finish()
	w.verdict("")
}

// TestGroupOpenRegions: what a GroupOpen may say of regions.
func TestGroupOpenRegions(t *testing.T) {
	region := func(rail uint16, addr uint64) Region { return Region{Rail: rail, Addr: addr, RKey: uint32(addr)} }
	for _, c := range []struct {
		name    string
		m       GroupOpen
		problem string
	}{
		{"whole", GroupOpen{Slots: 5, Regions: []Region{region(2, 1<<20), region(3, 2<<20)}}, ""},
		{"in pieces", GroupOpen{Slots: 5, RegionSlots: 4, Regions: []Region{region(2, 1<<20), region(2, 0), region(3, 7), region(3, 9)}}, ""},
		{"one piece", GroupOpen{Slots: 5, RegionSlots: 8, Regions: []Region{region(2, 1<<20), region(3, 0)}}, ""},
		{"not a power of two", GroupOpen{Slots: 5, RegionSlots: 3, Regions: []Region{region(2, 0), region(2, 0), region(3, 0), region(3, 0)}}, "not a power of two"},
		{"a piece too few", GroupOpen{Slots: 5, RegionSlots: 2, Regions: []Region{region(2, 0), region(2, 0), region(3, 0), region(3, 0)}}, "4 regions, 2 rails have 3 each"},
		{"pieces unasked", GroupOpen{Slots: 5, Regions: []Region{region(2, 0), region(2, 0), region(3, 0), region(3, 0)}}, "4 regions"},
		{"none", GroupOpen{Slots: 5}, "0 regions"},
		{"wrong rail", GroupOpen{Slots: 5, RegionSlots: 4, Regions: []Region{region(2, 0), region(3, 0), region(3, 0), region(3, 0)}}, "region of rail 3"},
		{"wraps", GroupOpen{Slots: 5, RegionSlots: 4, Regions: []Region{region(2, 0), region(2, ^uint64(0)-4*4096+1), region(3, 0), region(3, 0)}}, "wraps around"},
		{"huge pieces", GroupOpen{Slots: 5, RegionSlots: 1 << 31, Regions: []Region{region(2, 0), region(3, 0)}}, ""},
	} {
		g := &sessionGroup{group: &group{rails: []*groupRail{{index: 2}, {index: 3}}}}
		c.m.StrideBytes = 4096
		err := g.remoteShare(&c.m)
		if c.problem != "" {
			if err == nil || !strings.Contains(err.Error(), c.problem) {
				t.Errorf("%s: %v", c.name, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		each := len(c.m.Regions) / 2
		for k, rail := range g.rails {
			for slot := range c.m.Slots {
				to := rail.remote[slot>>g.cfg.remoteShift]
				want := c.m.Regions[k*each+int(slot)/4%each] // of the cases in pieces, all have 4
				if got := to.origin + uint64(slot)*4096; each > 1 && got != want.Addr+uint64(slot)%4*4096 || to.rkey != want.RKey {
					t.Errorf("%s: rail %d slot %d: %#x, rkey %d", c.name, k, slot, got, to.rkey)
				}
			}
		}
	}
}
