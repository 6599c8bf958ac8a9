package config

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
)

// check finds the settings that are fine alone and wrong together.
func (c *Config) check(d *decoder) {
	c.checkAPI(d)
	c.checkSocket(d)
	c.checkTrust(d)
	c.checkAccess(d, "delegates", c.Delegates)
	c.checkRoots(d)
	c.checkBuffers(d)
	c.checkDevices(d)
	c.checkMemory(d)
}

func (c *Config) checkAPI(d *decoder) {
	a := netip.MustParseAddrPort(c.API.Listen) // by form
	haveTLS := c.API.TLSCert != "" && c.API.TLSKey != ""
	if !a.Addr().IsLoopback() && !haveTLS {
		d.problem("api.listen", fmt.Sprintf("%s can be reached from other hosts, where tokens need TLS; set api.tls_cert and api.tls_key, or listen on loopback", a), "")
	}
	if (c.API.TLSCert == "") != (c.API.TLSKey == "") {
		d.problem("api.tls_cert", "a certificate and its key come together; set both api.tls_cert and api.tls_key, or neither", "")
	}
	if slices.Contains(c.Control.Listen, c.API.Listen) {
		d.problem("control.listen", fmt.Sprintf("%s is taken by api.listen; choose another port", c.API.Listen), "")
	}
}

func (c *Config) checkSocket(d *decoder) {
	// One that is set was checked by its form.
	if len(c.API.Socket) > maxSocketPathBytes {
		d.problem("api.socket", fmt.Sprintf("%s has %d bytes and the kernel takes %d; set a shorter path, off, or a shorter node.state_dir", c.API.Socket, len(c.API.Socket), maxSocketPathBytes), "")
	}
	for _, name := range sortedNames(c.API.SocketUsers) {
		at := "api.socket_users." + name
		if c.API.SocketUsers[name].Scope == "" {
			d.problem(at+".scope", "is missing", "metrics, read, submit, admin")
		}
		if name == "root" || name == "0" {
			d.problem(at, "root may do everything anyway; remove it", "")
		}
	}
	if len(c.API.SocketUsers) == 0 {
		return
	}
	switch {
	case c.API.Socket == SocketOff:
		d.problem("api.socket", "is off, and api.socket_users lists who may use it; set a path, or remove them", "")
	case within(c.API.Socket, c.Node.StateDir):
		// It has mode 0700, because of the key and tokens in it.
		d.problem("api.socket", "is in node.state_dir, which mover alone may enter, so that no api.socket_users reach it; set a path such as /run/mover/mover.sock", "")
	}
}

func (c *Config) checkTrust(d *decoder) {
	owner := map[string]string{}
	for _, name := range sortedNames(c.Peers) {
		p := c.Peers[name]
		at := "peers." + name
		if p.Fingerprint == "" && c.Control.CA == "" {
			d.problem(at, "nothing says how to recognise it; set its fingerprint (`mover identity` prints it there), or control.ca", "")
		}
		// One key under two names would let one node act as the other.
		if first, taken := owner[p.Fingerprint]; taken && p.Fingerprint != "" {
			d.problem(at+".fingerprint", fmt.Sprintf("is also that of peer %s; every node has its own", first), "")
		}
		owner[p.Fingerprint] = name
	}
}

func (c *Config) checkRoots(d *decoder) {
	for _, name := range sortedNames(c.Roots) {
		r := c.Roots[name]
		at := "roots." + name
		if r.Path == "" {
			d.problem(at+".path", "is missing", forms["path"].allowed)
			continue
		}
		if within(r.Path, c.Node.StateDir) || within(c.Node.StateDir, r.Path) {
			d.problem(at+".path", fmt.Sprintf("%s and node.state_dir %s, which holds this node's key and tokens, must not contain each other; move one of them", r.Path, c.Node.StateDir), "")
		}
		c.checkAccess(d, at+".read", r.Read)
		c.checkAccess(d, at+".write", r.Write)
	}
}

func (c *Config) checkBuffers(d *decoder) {
	var sum Size
	for _, name := range sortedNames(c.Buffers) {
		b := c.Buffers[name]
		at := "buffers." + name
		if b.Bytes == 0 {
			d.problem(at+".bytes", "is missing", sizeAllowed)
		}
		c.checkAccess(d, at+".read", b.Read)
		c.checkAccess(d, at+".write", b.Write)
		// Each is at most 64TiB, so that the sum of what a file holds cannot wrap.
		if sum += b.Bytes; c.Memory.Buffers > 0 && sum > c.Memory.Buffers {
			d.problem(at+".bytes", fmt.Sprintf("the buffers up to this one take %v, more than memory.buffers (%v); make them smaller, or raise it", sum, c.Memory.Buffers), "")
			return
		}
	}
}

// checkAccess refuses a name that no peer has: most likely a slip, and it
// would only show when a job is refused. With a CA peers need not be listed.
func (c *Config) checkAccess(d *decoder, at string, names []string) {
	if c.Control.CA != "" {
		return
	}
	for i, name := range names {
		if _, known := c.Peers[name]; !known && name != "*" && name != c.Node.Name {
			known := append(sortedNames(c.Peers), c.Node.Name, `"*"`)
			d.problem(fmt.Sprintf("%s[%d]", at, i), fmt.Sprintf("%q is not under peers", name), strings.Join(known, ", "))
		}
	}
}

func (c *Config) checkDevices(d *decoder) {
	if len(c.Devices.Providers) == 0 {
		d.problem("devices.providers", "is empty", "auto, or a list of ibv, soft")
	}
	if slices.Contains(c.Devices.Providers, "auto") && len(c.Devices.Providers) > 1 {
		d.problem("devices.providers", "auto stands alone", "auto, or a list of ibv, soft")
	}
	if c.Devices.Fallback == "forbid" && slices.Equal(c.Devices.Providers, []string{"soft"}) {
		d.problem("devices.fallback", "forbid never uses software verbs, and devices.providers has nothing else", "allow, or a provider of hardware (ibv)")
	}
	c.checkNames(d)
	if len(c.Soft.Addresses) == 0 && slices.Contains(c.Devices.Providers, "soft") {
		d.problem("soft.addresses", "is empty, and devices.providers wants software verbs", "at least one address, such as 127.0.0.1")
	}
	for i, s := range c.Soft.Addresses {
		if a := netip.MustParseAddr(s); !a.IsLoopback() && !c.Soft.AllowCleartext {
			d.problem(fmt.Sprintf("soft.addresses[%d]", i), fmt.Sprintf("software verbs send data unencrypted, and %s is not loopback; set soft.allow_cleartext: true on a network you trust, or use loopback", a), "")
		}
	}
	if len(c.Control.Listen) == 0 {
		d.problem("control.listen", "is empty", "at least one of "+forms["listen"].allowed)
	}
}

// checkNames refuses what is certainly a slip: a device with all of its ports
// and one of them alone.
func (c *Config) checkNames(d *decoder) {
	for i, s := range c.Devices.Names {
		n, _ := ParseDeviceName(s) // checked by form
		if n.Port != 0 && slices.Contains(c.Devices.Names, n.Name) {
			d.problem(fmt.Sprintf("devices.names[%d]", i), fmt.Sprintf("%s is one port of %s, which is listed with all of its ports; remove one of them", s, n.Name), "")
		}
	}
}

const (
	hugePageBytes    = 2 << 20
	giantPageBytes   = 1 << 30
	payloadAlignment = 4096 // O_DIRECT's, and a page
	slotsPerShare    = 16   // a lane group keeps at least 8, and two groups are usual
)

func (c *Config) checkMemory(d *decoder) {
	m, s := c.Memory, c.Session
	if m.SessionShare%hugePageBytes != 0 {
		d.problem("memory.session_share", fmt.Sprintf("%v is not a whole number of 2 MiB pages", m.SessionShare), "a multiple of 2MiB")
	}
	page, name := Size(hugePageBytes), "2MiB"
	if m.HugePages == "1GiB" {
		page, name = giantPageBytes, "1GiB, because memory.hugepages is 1GiB"
	}
	if m.Arena%page != 0 {
		d.problem("memory.arena", fmt.Sprintf("%v is not a whole number of pages", m.Arena), "a multiple of "+name)
	}
	if m.Arena < 2*m.SessionShare {
		d.problem("memory.arena", fmt.Sprintf("%v does not hold one session, which needs memory.session_share (%v) for each direction", m.Arena, m.SessionShare),
			fmt.Sprintf("at least %v, and that for every peer connected at once", 2*m.SessionShare))
	}
	if s.SlotPayload%payloadAlignment != 0 {
		d.problem("session.slot_payload", fmt.Sprintf("%v is not a whole number of 4 KiB blocks", s.SlotPayload), "a multiple of 4KiB")
	}
	if m.SessionShare < slotsPerShare*s.SlotPayload {
		d.problem("memory.session_share", fmt.Sprintf("%v holds fewer than %d slots of session.slot_payload (%v)", m.SessionShare, slotsPerShare, s.SlotPayload),
			fmt.Sprintf("at least %v, or a smaller slot_payload", slotsPerShare*s.SlotPayload))
	}
	if s.Segment%s.SlotPayload != 0 {
		d.problem("session.segment", fmt.Sprintf("%v is not a multiple of session.slot_payload (%v)", s.Segment, s.SlotPayload), "a multiple of slot_payload")
	}
}

// within reports whether inner is outer or below it, by name alone: links are
// the node's to resolve.
func within(inner, outer string) bool {
	rel, err := filepath.Rel(filepath.Clean(outer), filepath.Clean(inner))
	return err == nil && rel != ".." && !strings.HasPrefix(rel, "../")
}

func sortedNames[T any](m map[string]T) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
