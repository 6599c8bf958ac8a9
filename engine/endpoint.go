package engine

import (
	"errors"
	"fmt"

	"mover/verbs"
)

// endpoint is what a port is at the moment: its addresses move with its
// network interface's, and their indexes with every flap. It is asked for anew
// for every QP.
type endpoint struct {
	layer verbs.LinkLayer
	gid   verbs.GIDEntry
	lid   uint16
	mtu   verbs.MTU
	grh   bool
}

// endpoint asks a port what it is now. like, when not zero, is the address of
// the peer's end, whose family decides. The error says why no QP can be built
// on the port now.
func (p *LocalPort) endpoint(like verbs.GID) (endpoint, error) {
	o := &p.Offer
	attr, err := p.Context.QueryPort(o.Port)
	if err != nil {
		return endpoint{}, fmt.Errorf("%s here: %w", portName(o), err)
	}
	if attr.State != verbs.PortActive {
		return endpoint{}, fmt.Errorf("%s here is %s", portName(o), attr.State)
	}
	if !attr.ActiveMTU.Valid() {
		return endpoint{}, fmt.Errorf("%s here has no active MTU (%d)", portName(o), attr.ActiveMTU)
	}
	if attr.LinkLayer == verbs.LinkInfiniBand && attr.LID == 0 {
		return endpoint{}, fmt.Errorf("%s here has no LID: does a subnet manager run?", portName(o))
	}
	table, err := p.Context.QueryGIDTable(o.Port)
	if err != nil {
		return endpoint{}, fmt.Errorf("%s here: %w", portName(o), err)
	}
	wish := p.Wish
	if attr.LinkLayer != verbs.LinkInfiniBand {
		wish.Like = like
	}
	gid, err := verbs.ChooseGID(table, wish)
	if err != nil {
		return endpoint{}, fmt.Errorf("%s here: %w", portName(o), err)
	}
	return endpoint{layer: attr.LinkLayer, gid: gid, lid: attr.LID, mtu: attr.ActiveMTU, grh: attr.GRHRequired}, nil
}

// otherFamily is an address of the other family than g's.
func otherFamily(g verbs.GID) verbs.GID {
	if g.Addr().Is4() {
		return verbs.GID{15: 1}
	}
	return verbs.GID{10: 0xff, 11: 0xff, 15: 1}
}

// holds returns nil while QPs that are built on the endpoint have its addresses.
// On RoCE a QP names its GID by index, so one that went and came back elsewhere
// is lost to it.
func (e *endpoint) holds(p *LocalPort) error {
	o := &p.Offer
	attr, err := p.Context.QueryPort(o.Port)
	if err != nil {
		return err
	}
	if e.layer == verbs.LinkInfiniBand && attr.LID != e.lid {
		return fmt.Errorf("%s here had LID %d, and has %d", portName(o), e.lid, attr.LID)
	}
	table, err := p.Context.QueryGIDTable(o.Port)
	if err != nil {
		return err
	}
	for i := range table {
		if table[i].GID == e.gid.GID && table[i].Type == e.gid.Type && table[i].Index == e.gid.Index {
			return nil
		}
	}
	return fmt.Errorf("%s here has lost its GID %v, or has it at another index than %d", portName(o), e.gid.GID.Addr(), e.gid.Index)
}

// checkPeer refuses an address of the peer's that no healthy peer sends.
func (e *endpoint) checkPeer(peer *LaneEnd) error {
	if e.layer == verbs.LinkInfiniBand {
		return nil // its LID: see addressVector
	}
	switch a := peer.GID.Addr(); {
	case a.IsUnspecified() || a.IsMulticast():
		return fmt.Errorf("lane %d: GID %v is no port's", peer.Lane, a)
	case a.Is4() != e.gid.GID.Addr().Is4():
		return fmt.Errorf("lane %d: GID %v is of another family than %v here", peer.Lane, a, e.gid.GID.Addr())
	}
	return nil
}

// addressVector routes to the peer's end: by GID on RoCE and software verbs,
// by LID on InfiniBand, where a GRH is added only if a port demands it or the
// subnets differ (InfiniBand Architecture, volume 1, 9.2.1 and 8.3).
func (e *endpoint) addressVector(port uint8, peer *LaneEnd, peerGRH bool) (verbs.AHAttr, error) {
	av := verbs.AHAttr{Port: port, DGID: peer.GID, SGIDIndex: e.gid.Index, HopLimit: rcHopLimit, IsGlobal: true}
	if e.layer != verbs.LinkInfiniBand {
		return av, nil
	}
	if peer.LID == 0 {
		return av, errors.New("the peer's port has no LID: does a subnet manager run there?")
	}
	prefix := func(g verbs.GID) [8]byte { return [8]byte(g[:8]) }
	av.DLID = peer.LID
	av.IsGlobal = e.grh || peerGRH || !peer.GID.IsZero() && prefix(peer.GID) != prefix(e.gid.GID)
	if av.IsGlobal && peer.GID.IsZero() {
		return av, errors.New("a GRH is required, and the peer's port told no GID")
	}
	if !av.IsGlobal {
		av.DGID, av.SGIDIndex, av.HopLimit = verbs.GID{}, 0, 0
	}
	return av, nil
}
