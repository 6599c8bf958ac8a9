package engine

import (
	"unsafe"

	"mover/verbs"
)

// gidContext is a device whose GIDs can be taken away and given back, as those
// of a network interface's addresses, and whose verbs can be made to fail.
type gidContext struct {
	verbs.Context
	hide     func(verbs.GID) bool
	createQP func() error // before a QP is made
	modify   func(*verbs.QPAttr) error
	access   []verbs.Access // of what was registered
	deaf     bool           // nobody reads its events
}

func (c *gidContext) AllocPD() (verbs.PD, error) {
	pd, err := c.Context.AllocPD()
	return &gidPD{pd, c}, err
}

type gidPD struct {
	verbs.PD
	c *gidContext
}

func (p *gidPD) RegMR(mem []byte, access verbs.Access) (verbs.MR, error) {
	p.c.access = append(p.c.access, access)
	return p.PD.RegMR(mem, access)
}

func (p *gidPD) CreateQP(a verbs.QPInitAttr) (verbs.QP, error) {
	if p.c.createQP != nil {
		if err := p.c.createQP(); err != nil {
			return nil, err
		}
	}
	qp, err := p.PD.CreateQP(a)
	return &gidQP{qp, p.c}, err
}

type gidQP struct {
	verbs.QP
	c *gidContext
}

func (q *gidQP) Modify(a *verbs.QPAttr, mask verbs.AttrMask) error {
	if q.c.modify != nil {
		if err := q.c.modify(a); err != nil {
			return err
		}
	}
	return q.QP.Modify(a, mask)
}

func (c *gidContext) QueryGIDTable(port uint8) ([]verbs.GIDEntry, error) {
	table, err := c.Context.QueryGIDTable(port)
	var seen []verbs.GIDEntry
	for _, e := range table {
		if c.hide == nil || !c.hide(e.GID) {
			seen = append(seen, e)
		}
	}
	return seen, err
}

// alignedMemory is page-aligned memory; nothing moves it.
func alignedMemory(bytes int64) []byte {
	if bytes == 0 {
		return nil
	}
	const page = 4096
	b := make([]byte, bytes+page)
	skip := (page - int(uintptr(unsafe.Pointer(unsafe.SliceData(b)))%page)) % page
	return b[skip : skip+int(bytes) : skip+int(bytes)]
}

// shares are leased again by later worlds: making them anew takes as long as
// everything else.
var shares [][]byte

func takeShare(bytes int64) []byte {
	for i, m := range shares {
		if int64(len(m)) == bytes {
			shares[i] = shares[len(shares)-1]
			shares = shares[:len(shares)-1]
			return m
		}
	}
	return alignedMemory(bytes)
}
