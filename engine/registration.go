package engine

import (
	"fmt"

	"mover/verbs"
)

// registration is memory registered on one of the session's devices.
type registration struct {
	device int
	offset int64
	mr     verbs.MR
}

// register registers memory on every device, split where a device can't take
// it whole, at segment boundaries, so that no chunk crosses two MRs.
func (s *Session) register(memory []byte, access verbs.Access) ([]registration, error) {
	var regs []registration
	for d := range s.pds {
		most := len(memory)
		if limit := s.pds[d].attr.MaxMRSize; uint64(most) > limit {
			most = int(limit) / s.plan.segmentBytes * s.plan.segmentBytes
			if most == 0 {
				s.deregister(regs)
				return nil, fmt.Errorf("device %s registers at most %d bytes, a segment has %d",
					s.pds[d].ctx.Device().Name, limit, s.plan.segmentBytes)
			}
		}
		for at := 0; at < len(memory); at += most {
			mr, err := s.pds[d].pd.RegMR(memory[at:min(at+most, len(memory))], access)
			if err != nil {
				s.deregister(regs)
				return nil, err
			}
			regs = append(regs, registration{device: d, offset: int64(at), mr: mr})
		}
	}
	return regs, nil
}

func (s *Session) deregister(regs []registration) {
	for _, r := range regs {
		if err := r.mr.Dereg(); err != nil {
			s.cfg.Log("deregistering an item's memory", "error", err)
		}
	}
}

// find is the registration of an offset on a device.
func find(regs []registration, device int, offset int64) *registration {
	for k := range regs {
		r := &regs[k]
		if r.device == device && offset >= r.offset && offset-r.offset < int64(r.mr.Length()) {
			return r
		}
	}
	return nil
}
