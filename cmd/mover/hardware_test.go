package main

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"mover/engine"
	"mover/node/config"
	"mover/node/device"
	"mover/peer"
	"mover/verbs"
)

// noHardware is a devices section under which no host has RDMA: the library is
// not there.
func noHardware(fallback string) string {
	return "{providers: auto, libibverbs: /nowhere/libibverbs.so.1, fallback: " + fallback + "}"
}

func TestForbiddenFallback(t *testing.T) {
	n := newNode(t, "a")
	n.devices = noHardware("forbid")
	n.configure(t, "")
	got := mover(t, "run", "--config", n.config())
	got.want(t, exitFailed, "mover: no device to use: ibv: this host has ", "soft: devices.fallback is forbid; see `mover doctor`, or set devices.fallback: allow")
	if strings.Count(got.stderr, "\n") != 1 {
		t.Errorf("more than a line:\n%s", got.stderr)
	}
	if _, err := os.Stat(n.path("state")); !os.IsNotExist(err) {
		t.Errorf("a node that does not start leaves a state directory: %v", err)
	}
	mover(t, "doctor", "--config", n.config()).want(t, exitFailed, "fail  devices", "devices.fallback is forbid")
}

// TestAllowedFallback: it is said wherever a rail is.
func TestAllowedFallback(t *testing.T) {
	a, b := newNode(t, "a"), newNode(t, "b")
	a.devices = noHardware("allow")
	a.configure(t, "", b.as(t))
	b.configure(t, "", a.as(t))
	a.start(t)
	b.start(t)
	const why = "falling back to software verbs: ibv: this host has "
	within(t, jobLimit, "the log does not say so", func() bool {
		return strings.Contains(a.log.String(), `level=WARN msg="verbs provider" provider=soft why="`+why)
	})
	makeFile(t, a.path("data", "x"), 1000)
	a.ended(t, a.submit(t, "x", "b", "x"))
	for path, want := range map[string]string{
		"/v1/devices": `"hardware":false,"reason":"` + why,
		"/v1/peers":   `"provider":"soft","reason":"` + why,
		"/metrics":    `mover_rail_info{fallback="true",local_device="soft0",local_port="1",peer="b",provider="soft",`,
	} {
		status, _, body := a.call(t, http.MethodGet, path, "")
		if status != http.StatusOK || !strings.Contains(string(body), want) {
			t.Errorf("%s: %d, without %s: %s", path, status, want, body)
		}
	}
	mover(t, "devices", "--config", a.config()).want(t, exitOK, "provider: soft ("+why, "fallback: forbid makes this an error")

	// The doctor asks the peer which ports it has, as a peer of it.
	mover(t, "doctor", "--config", a.config()).want(t, exitOK, "warn  devices        "+why,
		"ok    peer b         "+b.control+" is b, mover v0.0.0-test",
		"ok    peer b         2 rails: soft0 port 1 - soft0 port 1 (soft, MTU 4096), soft1 port 1 - soft1 port 1 (soft, MTU 4096)")
	a.stop(t)
	b.stop(t)
}

func TestDoctorOfPeers(t *testing.T) {
	a, b, c := newNode(t, "a"), newNode(t, "b"), newNode(t, "c")
	b.configure(t, "", a.as(t))
	b.start(t)
	wrong := peerOf{"b", b.control, c.fingerprint(t)}
	a.configure(t, "", wrong, peerOf{"d", c.control, "sha256:" + strings.Repeat("0", 64)})
	mover(t, "doctor", "--config", a.config()).want(t, exitFailed, "fail  peer b", c.fingerprint(t), "fix: correct peers.b.fingerprint",
		"warn  peer d", "connection refused", "fix: start mover there")
	// b does not know c.
	c.configure(t, "", b.as(t))
	mover(t, "doctor", "--config", c.config()).want(t, exitFailed, "fail  peer b", "refused this node", "fix: make b know this node")
	if strings.Contains(b.log.String(), "session") {
		t.Errorf("asking made a session:\n%s", b.log.String())
	}
	b.stop(t)

	// Before there is a key, only whether something answers is known.
	e := newNode(t, "e")
	e.configure(t, "", b.as(t))
	mover(t, "doctor", "--config", e.config()).want(t, exitOK, "warn  identity", "no key yet", "fix: mover identity", "warn  peer b")
	if _, err := os.Stat(e.path("state")); !os.IsNotExist(err) {
		t.Errorf("the doctor changed something: %v", err)
	}
}

// TestInsistedHugePages: no host has a terabyte of them.
func TestInsistedHugePages(t *testing.T) {
	n := newNode(t, "a")
	n.configure(t, "")
	text, err := os.ReadFile(n.config())
	if err != nil {
		t.Fatal(err)
	}
	changed := strings.Replace(string(text), "arena: 128MiB, session_share: 32MiB, hugepages: none", "arena: 1TiB, session_share: 32MiB, hugepages: 2MiB", 1)
	writeFile(t, n.config(), changed)
	mover(t, "run", "--config", n.config()).want(t, exitFailed, "mover: memory.hugepages is 2MiB, and NUMA node ", "of the 524288 pages needed free; echo ", "or set memory.hugepages: auto")
	mover(t, "doctor", "--config", n.config()).want(t, exitFailed, "fail  huge pages     memory.hugepages is 2MiB, and NUMA node ", "of the 524288 pages needed free", "fix: echo ")
}

// attribute writes a file of a tree of sysfs.
func attribute(t *testing.T, text string, parts ...string) {
	t.Helper()
	writeFile(t, filepath.Join(parts...), text+"\n")
}

func lines(findings []finding) string {
	var b strings.Builder
	report(&b, findings)
	return b.String()
}

func TestDoctorOfHardware(t *testing.T) {
	dir := t.TempDir()
	host := device.Host{Sys: filepath.Join(dir, "sys"), Dev: filepath.Join(dir, "dev")}
	optional, soft, needed := config.Default(), config.Default(), config.Default()
	soft.Devices.Providers = []string{"soft"}
	needed.Devices.Fallback = "forbid"
	needed.Devices.Libibverbs = "/nowhere/libibverbs.so.1"
	check := func(what string, cfg *config.Config, wants ...string) {
		t.Helper()
		got := lines(checkRDMA(host, cfg))
		for _, want := range wants {
			if !strings.Contains(got, want) {
				t.Errorf("%s: %q is missing in\n%s", what, want, got)
			}
		}
	}
	check("nothing", optional, "warn  rdma           this host has no RDMA device; the kernel module ib_uverbs is not loaded", "fix: load its driver")
	check("nothing, needed", needed, "fail  rdma")
	check("nothing, not wanted", soft, "ok    rdma", "not wanted: devices.providers is soft")

	attribute(t, "1: DOWN", host.Sys, "class/infiniband/rxe0/ports/1/state")
	check("no module", optional, "ok    rdma           the kernel has rxe0", "warn  uverbs         the kernel module ib_uverbs is not loaded", "fix: modprobe ib_uverbs")
	attribute(t, "rxe9", host.Sys, "class/infiniband_verbs/uverbs9/ibdev")
	check("another namespace", needed, "fail  uverbs         rxe0 has no device node in this network namespace", "rdma dev set rxe0 netns")
	attribute(t, "rxe0", host.Sys, "class/infiniband_verbs/uverbs0/ibdev")
	check("no node", needed, "fail  uverbs         rxe0: "+host.Dev+"/infiniband/uverbs0: no such file", "--device /dev/infiniband",
		"fail  libibverbs")
	attribute(t, "", host.Dev, "infiniband/uverbs0")
	check("a node", needed, "ok    uverbs         rxe0: "+host.Dev+"/infiniband/uverbs0 can be opened")
}

func TestDoctorOfPorts(t *testing.T) {
	ibv := device.Device{DeviceInfo: verbs.DeviceInfo{Provider: "ibv", Name: "mlx5_0"}}
	good := device.Port{Number: 1, PKey: 0xffff, Attr: verbs.PortAttr{State: verbs.PortActive, LinkLayer: verbs.LinkInfiniBand, LID: 0x11, ActiveMTU: verbs.MTU4096, ActiveRate: 200e9}}
	limited, small, broken := good, good, good
	limited.PKey = 0x7fff
	small.Attr.LinkLayer, small.Attr.ActiveMTU, small.Netdevs = verbs.LinkEthernet, verbs.MTU1024, []string{"eth2"}
	broken.Problem = &device.Problem{What: "device mlx5_0 port 1 is DOWN", Fix: "plug it in"}
	for _, c := range []struct {
		name   string
		port   device.Port
		others bool
		want   []string
		not    string
	}{
		{"good", good, true, []string{"ok    port           device mlx5_0 port 1 is ACTIVE, InfiniBand, GID ::, LID 0x11, MTU 4096, 200Gbit/s"}, "warn"},
		{"limited member", limited, true, []string{"warn  port           device mlx5_0 port 1 has P_Key 0x7fff, a limited member"}, "fail"},
		{"small packets", small, true, []string{"warn  port           device mlx5_0 port 1 has an MTU of 1024", "fix: ip link set eth2 mtu 9000"}, "fail"},
		{"one of several is down", broken, true, []string{"warn  port           device mlx5_0 port 1 is DOWN", "fix: plug it in"}, "fail"},
		{"the only one is down", broken, false, []string{"fail  port           device mlx5_0 port 1 is DOWN"}, "warn"},
	} {
		got := lines(checkPort(ibv, c.port, c.others))
		for _, want := range c.want {
			if !strings.Contains(got, want) {
				t.Errorf("%s: %q is missing in\n%s", c.name, want, got)
			}
		}
		if strings.Contains(got, c.not) {
			t.Errorf("%s: has %s\n%s", c.name, c.not, got)
		}
	}
}

// TestDoctorMatchesPorts: what keeps two nodes apart is one line each.
func TestDoctorMatchesPorts(t *testing.T) {
	port := func(provider, dev string, last byte, edit ...func(*engine.PortOffer)) engine.PortOffer {
		p := engine.PortOffer{Provider: provider, Device: dev, Port: 1, LinkLayer: verbs.LinkEthernet, GIDType: verbs.GIDRoCEv2,
			GID: verbs.GID{10: 0xff, 11: 0xff, 12: 192, 14: 2, 15: last}, MTU: verbs.MTU4096, RateBits: 100e9}
		for _, e := range edit {
			e(&p)
		}
		return p
	}
	isIB := func(p *engine.PortOffer) {
		p.LinkLayer, p.GIDType, p.LID = verbs.LinkInfiniBand, verbs.GIDInfiniBand, 7
	}
	isV1 := func(p *engine.PortOffer) { p.GIDType = verbs.GIDRoCEv1 }
	isDown := func(p *engine.PortOffer) { p.Down = true }
	isSmall := func(p *engine.PortOffer) { p.MTU = verbs.MTU1024 }
	offers := func(p ...engine.PortOffer) []engine.PortOffer { return p }
	here := offers(port("ibv", "mlx5_0", 1))
	for _, c := range []struct {
		name   string
		here   []engine.PortOffer
		there  peer.Description
		want   []string
		failed int
	}{
		{"alike", here, peer.Description{Ports: offers(port("ibv", "rxe7", 2))}, []string{"ok    peer b         1 rail: mlx5_0 port 1 - rxe7 port 1 (ibv, MTU 4096)"}, 0},
		{"MTU", here, peer.Description{Ports: offers(port("ibv", "rxe7", 2, isSmall))},
			[]string{"warn  peer b         mlx5_0 port 1: its MTU is 4096, that of rxe7 port 1 there 1024; 1024 is used", "MTU 1024)"}, 0},
		{"link layers", here, peer.Description{Ports: offers(port("ibv", "mlx5_9", 2, isIB))},
			[]string{"fail  peer b         mlx5_0 port 1 here is Ethernet, mlx5_9 port 1 there is InfiniBand", "fix: "}, 1},
		{"GID types", here, peer.Description{Ports: offers(port("ibv", "mlx5_9", 2, isV1))},
			[]string{"fail  peer b         mlx5_0 port 1: GID types differ: RoCE v2 here, RoCE v1 at mlx5_9 port 1 there"}, 1},
		{"providers", here, peer.Description{Reason: "falling back to software verbs: no library", Ports: offers(port("soft", "soft0", 2))},
			[]string{"fail  peer b         mlx5_0 port 1: providers differ: ibv here, soft at soft0 port 1 there (there: falling back to software verbs: no library)"}, 1},
		{"down there", here, peer.Description{Ports: offers(port("ibv", "rxe7", 2, isDown))}, []string{"fail  peer b         mlx5_0 port 1: rxe7 port 1 there is down"}, 1},
		{"one of two down there", offers(port("ibv", "mlx5_0", 1), port("ibv", "mlx5_1", 3)),
			peer.Description{Ports: offers(port("ibv", "rxe7", 2, isDown), port("ibv", "rxe8", 4))}, []string{"ok    peer b         1 rail", "warn  peer b", "rxe7 port 1 there is down"}, 0},
		{"no port there", here, peer.Description{}, []string{"fail  peer b         mlx5_0 port 1: the peer offers no port"}, 1},
	} {
		var b strings.Builder
		failed := report(&b, matchPeer("b", c.here, &c.there))
		for _, want := range c.want {
			if !strings.Contains(b.String(), want) {
				t.Errorf("%s: %q is missing in\n%s", c.name, want, b.String())
			}
		}
		if failed != c.failed {
			t.Errorf("%s: %d failed, want %d\n%s", c.name, failed, c.failed, b.String())
		}
	}
}
