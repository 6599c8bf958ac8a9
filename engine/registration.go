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

// register registers memory on every device. A device that refuses is left out
// when no lane of it is up, or it does not answer any more, and others take the
// memory: the item then goes over their rails alone.
func (s *Session) register(memory []byte, access verbs.Access) ([]registration, error) {
	var regs []registration
	var refused error
	for d := range s.pds {
		more, err := s.registerOn(d, memory, access)
		if err != nil && s.deviceUp(d) {
			if _, gone := s.pds[d].ctx.QueryDevice(); gone == nil {
				s.deregister(regs)
				return nil, err
			}
			s.portEvent(s.pds[d].ctx, verbs.AsyncEvent{Type: verbs.EventDeviceFatal}) // nobody has told yet
		}
		if err != nil {
			refused = err
		}
		regs = append(regs, more...)
	}
	if len(regs) == 0 {
		return nil, refused // an item without bytes has nothing to register
	}
	return regs, nil
}

// registerOn splits what the device can't take whole, at segment boundaries, so
// that no chunk crosses two MRs.
func (s *Session) registerOn(d int, memory []byte, access verbs.Access) (regs []registration, err error) {
	most := len(memory)
	if limit := s.pds[d].attr.MaxMRSize; uint64(most) > limit {
		most = int(limit) / s.plan.segmentBytes * s.plan.segmentBytes
		if most == 0 {
			return nil, fmt.Errorf("device %s registers at most %d bytes, a segment has %d",
				s.pds[d].ctx.Device().Name, limit, s.plan.segmentBytes)
		}
	}
	for at := 0; at < len(memory); at += most {
		mr, err := s.pds[d].pd.RegMR(memory[at:min(at+most, len(memory))], s.pds[d].access(access))
		if err != nil {
			s.deregister(regs)
			return nil, err
		}
		regs = append(regs, registration{device: d, offset: int64(at), mr: mr})
	}
	return regs, nil
}

// deviceUp reports whether a lane on the device is up.
func (s *Session) deviceUp(d int) bool {
	for _, l := range s.lanes {
		if l.ready && s.railPort(l.rail).Context == s.pds[d].ctx {
			return true
		}
	}
	return false
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
