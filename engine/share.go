package engine

import (
	"errors"
	"fmt"
	"math/bits"

	"mover/reason"
	"mover/verbs"
)

// wholeShare is the shift of a share in one region: there are at most
// maxGroupSlots slots.
const wholeShare = 31

// shareShift is how the slots of a group's shares are dealt out to MRs, so that
// every device of the group can register each: 1<<shift slots an MR. A power of
// two keeps a division out of the hot loop.
func (s *Session) shareShift(group uint16, slots, stride int) (uint8, error) {
	shift, rails := uint8(wholeShare), 0
	for r := range s.plan.rails {
		if !s.groupHasRail(group, uint16(r)) {
			continue
		}
		rails++
		d, err := s.device(s.railPort(uint16(r)))
		if err != nil {
			return 0, err
		}
		limit := s.pds[d].attr.MaxMRSize
		if uint64(slots)*uint64(stride) <= limit {
			continue
		}
		fit := limit / uint64(stride)
		if fit == 0 {
			return 0, reason.New(reason.PeerRefused, "device %s registers at most %d bytes, a slot has %d: lower session.slot_payload",
				s.pds[d].ctx.Device().Name, limit, stride)
		}
		shift = min(shift, uint8(bits.Len64(fit)-1))
	}
	if n := regionsOf(slots, shift); n*rails > MaxBatch {
		return 0, reason.New(reason.PeerRefused, "a share of %d slots takes %d memory regions on each of %d rails, at most %d can be told: lower memory.session_share",
			slots, n, rails, MaxBatch)
	}
	return shift, nil
}

// regionsOf counts the regions of a share.
func regionsOf(slots int, shift uint8) int { return (slots-1)>>shift + 1 }

// registerShare registers a share on the device of every rail of the group and
// lays out the group's lanes on the way.
func (s *Session) registerShare(g *sessionGroup, memory []byte, access verbs.Access) error {
	keys := make([][]verbs.MR, len(s.pds))
	for r := range s.plan.rails {
		if !s.groupHasRail(g.id, uint16(r)) {
			continue
		}
		port := s.railPort(uint16(r))
		d, err := s.device(port)
		if err != nil {
			return err
		}
		if keys[d] == nil {
			if keys[d], err = s.registerSlots(g, d, memory, access); err != nil {
				return err
			}
		}
		if access == 0 {
			rail := &groupRail{index: uint16(r), shown: s.Rails()[r],
				limit: max(inFlightBytes(port.Offer.RateBits), 4*int64(g.cfg.strideBytes))}
			for _, mr := range keys[d] {
				rail.lkeys = append(rail.lkeys, mr.LKey())
			}
			g.rails = append(g.rails, rail)
			continue
		}
		for _, mr := range keys[d] {
			g.regions = append(g.regions, Region{Rail: uint16(r), Addr: mr.Addr(), RKey: mr.RKey()})
		}
	}
	return nil
}

// registerSlots registers the slots in a share on one device.
func (s *Session) registerSlots(g *sessionGroup, d int, memory []byte, access verbs.Access) ([]verbs.MR, error) {
	mrs := make([]verbs.MR, regionsOf(g.slots, g.cfg.localShift))
	for i := range mrs {
		from := i << g.cfg.localShift
		to := min(from+1<<g.cfg.localShift, g.slots)
		mr, err := s.pds[d].pd.RegMR(memory[from*g.cfg.strideBytes:to*g.cfg.strideBytes], s.pds[d].access(access))
		if err != nil {
			return nil, err
		}
		g.mrs, mrs[i] = append(g.mrs, mr), mr
	}
	return mrs, nil
}

// remoteShare takes the peer's receive slots from its GroupOpen.
func (g *sessionGroup) remoteShare(m *GroupOpen) error {
	shift := uint8(wholeShare)
	if n := m.RegionSlots; n != 0 {
		if n&(n-1) != 0 {
			return fmt.Errorf("GroupOpen with regions of %d slots, not a power of two", n)
		}
		shift = uint8(bits.TrailingZeros32(n))
	}
	each := regionsOf(int(m.Slots), shift)
	if len(m.Regions) != each*len(g.rails) {
		return fmt.Errorf("GroupOpen with %d regions, %d rails have %d each", len(m.Regions), len(g.rails), each)
	}
	span := uint64(min(int64(m.Slots), int64(1)<<shift)) * uint64(m.StrideBytes)
	for k, r := range m.Regions {
		rail := g.rails[k/each]
		if r.Rail != rail.index {
			return fmt.Errorf("GroupOpen: region of rail %d", r.Rail)
		}
		if r.Addr > ^uint64(0)-span {
			return errors.New("GroupOpen: a region that wraps around")
		}
		before := uint64(k%each) << shift * uint64(m.StrideBytes)
		rail.remote = append(rail.remote, remoteRegion{origin: r.Addr - before, rkey: r.RKey})
	}
	g.cfg.remoteShift = shift
	return nil
}
