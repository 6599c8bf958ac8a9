//go:build moverfault

package device

import (
	"slices"
	"sync"

	"mover/fault"
	"mover/verbs"
)

// injected is software verbs with the faults of a test build. What is not
// about a fault is the provider's own, completion queues above all: it knows
// them by their type.
func injected(p verbs.Provider) verbs.Provider { return faultyProvider{p} }

type faultyProvider struct{ verbs.Provider }

func (p faultyProvider) OpenDevice(name string) (verbs.Context, error) {
	ctx, err := p.Provider.OpenDevice(name)
	if err != nil {
		return nil, err
	}
	return faultyContext{ctx}, nil
}

type faultyContext struct{ verbs.Context }

func (c faultyContext) AllocPD() (verbs.PD, error) {
	pd, err := c.Context.AllocPD()
	if err != nil {
		return nil, err
	}
	return &faultyPD{PD: pd}, nil
}

// faultyPD knows the memory that its QPs send from.
type faultyPD struct {
	verbs.PD
	mu      sync.Mutex
	regions []region
}

type region struct {
	addr uint64
	mem  []byte
}

func (p *faultyPD) RegMR(mem []byte, access verbs.Access) (verbs.MR, error) {
	mr, err := p.PD.RegMR(mem, access)
	if err == nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.regions = append(p.regions, region{mr.Addr(), mem})
	}
	return mr, err
}

func (p *faultyPD) CreateQP(attr verbs.QPInitAttr) (verbs.QP, error) {
	qp, err := p.PD.CreateQP(attr)
	if err != nil {
		return nil, err
	}
	return &faultyQP{qp, p}, nil
}

// flip changes the byte at addr. The WR that is about to be posted owns it.
func (p *faultyPD) flip(addr uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	// Backwards: what was registered last may be where something older was.
	for _, r := range slices.Backward(p.regions) {
		if addr >= r.addr && addr-r.addr < uint64(len(r.mem)) {
			r.mem[addr-r.addr] ^= 1
			return
		}
	}
}

type faultyQP struct {
	verbs.QP
	pd *faultyPD
}

func (q *faultyQP) PostSend(wrs []verbs.SendWR) (int, error) {
	flips, wrong := fault.Now(fault.WireFlips), fault.Now(fault.WrongRKey)
	if !flips && !wrong {
		return q.QP.PostSend(wrs)
	}
	wrs = slices.Clone(wrs)
	for i := range wrs {
		w := &wrs[i]
		if w.Op != verbs.OpWrite && w.Op != verbs.OpWriteWithImm || len(w.SGL) == 0 {
			continue
		}
		if flips {
			q.pd.flip(w.SGL[0].Addr)
		}
		if wrong {
			w.RKey = ^w.RKey
		}
	}
	return q.QP.PostSend(wrs)
}
