//go:build linux

package soft

import (
	"fmt"
	"os"
	"syscall"

	"mover/verbs"
)

// domain is a protection domain. mrs, qps and ahs are guarded by dev.mu.
type domain struct {
	dev           *device
	keys          keyTable
	mrs, qps, ahs int
	freed         bool
}

func (p *domain) Context() verbs.Context { return p.dev }

func (p *domain) RegMR(mem []byte, access verbs.Access) (verbs.MR, error) {
	const op = "register MR"
	page := uint64(os.Getpagesize())
	addr := addressOf(mem)
	switch {
	case len(mem) == 0 || addr%page != 0 || uint64(len(mem))%page != 0:
		return nil, &verbs.Error{Op: op, Errno: syscall.EINVAL,
			Detail: fmt.Sprintf("%d bytes at %#x are not whole pages of %d", len(mem), addr, page)}
	case uint64(len(mem)) > maxMRBytes:
		return nil, &verbs.Error{Op: op, Errno: syscall.EINVAL, Detail: fmt.Sprintf("more than %d bytes", uint64(maxMRBytes))}
	case access&^knownAccess != 0:
		return nil, &verbs.Error{Op: op, Errno: syscall.EINVAL, Detail: fmt.Sprintf("unknown access flags %#x", uint32(access&^knownAccess))}
	case access&(verbs.AccessRemoteWrite|verbs.AccessRemoteAtomic) != 0 && access&verbs.AccessLocalWrite == 0:
		return nil, &verbs.Error{Op: op, Errno: syscall.EINVAL, Detail: "remote write and atomic need local write"}
	}
	d := p.dev
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.admit(op, p.freed, d.counts.MR, maxMR); err != nil {
		return nil, err
	}
	m := &memory{mem: mem, addr: addr, access: access, pd: p, lkey: d.keys.take(), rkey: d.keys.take()}
	p.keys.change(m, true)
	p.mrs++
	d.counts.MR++
	return m, nil
}

// forget makes the keys of m unknown.
func (p *domain) forget(m *memory) { p.keys.change(m, false) }

// release frees the keys of m.
func (p *domain) release(m *memory) error {
	d := p.dev
	d.mu.Lock()
	defer d.mu.Unlock()
	if m.freed {
		return &verbs.Error{Op: "deregister MR", Errno: syscall.EINVAL, Detail: "already deregistered"}
	}
	m.freed = true
	d.keys.retire(m.lkey)
	d.keys.retire(m.rkey)
	p.mrs--
	d.counts.MR--
	return nil
}

func (p *domain) Dealloc() error {
	d := p.dev
	d.mu.Lock()
	defer d.mu.Unlock()
	if p.freed {
		return &verbs.Error{Op: "dealloc PD", Errno: syscall.EINVAL, Detail: "already deallocated"}
	}
	if p.mrs+p.qps+p.ahs != 0 {
		return &verbs.Error{Op: "dealloc PD", Errno: syscall.EBUSY,
			Detail: fmt.Sprintf("%d MRs, %d QPs and %d AHs still use it", p.mrs, p.qps, p.ahs)}
	}
	p.freed = true
	d.counts.PD--
	return nil
}
