//go:build linux

package ibv

// #include "shim.h"
import "C"

import (
	"encoding/binary"
	"fmt"
	"slices"
	"syscall"

	"mover/verbs"
)

// flagGRHRequired is IBV_QPF_GRH_REQUIRED.
const flagGRHRequired = 1

// maxGIDs bounds a GID table; rxe's has 1024 entries a port.
const maxGIDs = 4096

// maxSGIDIndex is the last entry that an address can name: struct
// ibv_global_route has 8 bits for it.
const maxSGIDIndex = 255

func (d *device) checkPort(op string, port uint8) error {
	if port < 1 || int(port) > d.info.Ports {
		return &verbs.Error{Op: op, Errno: syscall.EINVAL, Detail: fmt.Sprintf("port %d of %d of %s", port, d.info.Ports, d.info.Name)}
	}
	return nil
}

func (d *device) QueryPort(port uint8) (verbs.PortAttr, error) {
	const op = "query port"
	if err := d.checkPort(op, port); err != nil {
		return verbs.PortAttr{}, err
	}
	if err := d.enter(op); err != nil {
		return verbs.PortAttr{}, err
	}
	defer d.use.RUnlock()
	a := C.mv_query_port(d.lib.handle, d.ctx, C.uint8_t(port))
	if a.err != 0 {
		return verbs.PortAttr{}, d.failed(op, a.err, fmt.Sprintf("port %d", port))
	}
	attr := verbs.PortAttr{
		State: verbs.PortState(a.state), LinkLayer: verbs.LinkLayer(a.link_layer), MaxMTU: verbs.MTU(a.max_mtu),
		ActiveMTU: verbs.MTU(a.active_mtu), LID: uint16(a.lid), GIDTableLen: int(a.gid_tbl_len), PKeyTableLen: int(a.pkey_tbl_len),
		ActiveRate: d.sys.portRate(port, uint8(a.width), uint32(a.speed)), GRHRequired: a.flags&flagGRHRequired != 0,
	}
	if attr.LinkLayer == verbs.LinkUnspecified {
		// Providers older than RoCE leave it unspecified (ibv_query_port(3)).
		attr.LinkLayer = verbs.LinkInfiniBand
	}
	if attr.LinkLayer == verbs.LinkInfiniBand {
		if g := C.mv_query_gid(d.lib.handle, d.ctx, C.uint8_t(port), 0); g.err == 0 {
			gid := gidOf(&g.entry)
			attr.SubnetPrefix = binary.BigEndian.Uint64(gid[:8])
		}
	}
	return attr, nil
}

func gidOf(e *C.struct_mv_gid_entry) (g verbs.GID) {
	for i, b := range e.gid {
		g[i] = byte(b)
	}
	return g
}

// QueryGIDTable leaves out the entries that no address can name.
func (d *device) QueryGIDTable(port uint8) ([]verbs.GIDEntry, error) {
	attr, err := d.QueryPort(port)
	if err != nil {
		return nil, err
	}
	if err := d.enter("query GID table"); err != nil {
		return nil, err
	}
	defer d.use.RUnlock()
	length := min(attr.GIDTableLen, maxGIDs)
	raw, ok := d.wholeTable(port, length)
	if !ok {
		raw = d.tableByEntry(port, min(length, maxSGIDIndex+1), attr.LinkLayer)
	}
	var table []verbs.GIDEntry
	for _, e := range raw {
		if !e.GID.IsZero() && e.Index <= maxSGIDIndex {
			e.Netdev = d.sys.gidNetdev(port, e.Index)
			table = append(table, e)
		}
	}
	slices.SortFunc(table, func(a, b verbs.GIDEntry) int { return a.Index - b.Index })
	return table, nil
}

// wholeTable asks for all entries at once (ibv_query_gid_table(3)): one call,
// and the library knows the types. The answer has the entries of every port.
func (d *device) wholeTable(port uint8, length int) ([]verbs.GIDEntry, bool) {
	buf := make([]C.struct_mv_gid_entry, max(length, 1)*max(d.info.Ports, 1))
	n := C.mv_query_gid_table(d.lib.handle, d.ctx, &buf[0], C.int(len(buf)))
	if n < 0 {
		return nil, false
	}
	var table []verbs.GIDEntry
	for i := range buf[:n] {
		if e := &buf[i]; uint8(e.port) == port {
			table = append(table, verbs.GIDEntry{Index: int(e.index), GID: gidOf(e), Type: gidTypeOf(uint32(e._type))})
		}
	}
	return table, true
}

// tableByEntry asks for one entry after the other. What cannot be read is left
// out: in a container the entries of other network namespaces are EINVAL.
func (d *device) tableByEntry(port uint8, length int, link verbs.LinkLayer) []verbs.GIDEntry {
	var table []verbs.GIDEntry
	for i := range length {
		g := C.mv_query_gid(d.lib.handle, d.ctx, C.uint8_t(port), C.int(i))
		if g.err != 0 {
			continue
		}
		e := verbs.GIDEntry{Index: i, GID: gidOf(&g.entry), Type: gidTypeOf(uint32(g.entry._type))}
		if g.typed == 0 && !e.GID.IsZero() {
			e.Type = d.sys.gidType(port, i, link)
		}
		table = append(table, e)
	}
	return table
}

// gidTypeOf translates enum ibv_gid_type.
func gidTypeOf(t uint32) verbs.GIDType {
	switch t {
	case 0:
		return verbs.GIDInfiniBand
	case 1:
		return verbs.GIDRoCEv1
	case 2:
		return verbs.GIDRoCEv2
	}
	return verbs.GIDUnknown
}
