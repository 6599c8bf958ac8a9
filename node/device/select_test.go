package device

import (
	"errors"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"mover/node/config"
	"mover/numa"
	"mover/verbs"
	"mover/verbs/ibv"
)

func parseGID(t *testing.T, s string) verbs.GID {
	t.Helper()
	return verbs.GIDFromAddr(netip.MustParseAddr(s))
}

func TestChoose(t *testing.T) {
	hardware := candidate{name: "ibv", provider: provider("ibv", "mlx5_0", "mlx5_1")}
	empty := candidate{name: "ibv", provider: provider("ibv")}
	none := candidate{name: "ibv", missing: &Problem{"no library", "install it"}}
	software := candidate{name: "soft", provider: provider("soft", "soft0")}
	cannot := func(name string) error {
		return &ibv.DeviceError{Device: name, Node: "/dev/infiniband/uverbs7", Errno: syscall.EACCES, Hint: "open it"}
	}
	half, broken := hardware, hardware
	partly, wholly := provider("ibv", "mlx5_0", "mlx5_1"), provider("ibv", "mlx5_0", "mlx5_1")
	partly.check = func(name string) error {
		if name == "mlx5_0" {
			return cannot(name)
		}
		return nil
	}
	wholly.check = cannot
	half.provider, broken.provider = partly, wholly
	emulated := provider("ibv", "rxe0")
	emulated.infos[0].Software = true
	for _, c := range []struct {
		name, fallback string
		names          []string
		candidates     []candidate
		want           string // "provider: devices", "+" when it is a fallback
		reason         string
	}{
		{"hardware first", "allow", nil, []candidate{hardware, software}, "ibv: mlx5_0 mlx5_1", "ibv has devices"},
		{"hardware first, forbid", "forbid", nil, []candidate{hardware, software}, "ibv: mlx5_0 mlx5_1", ""},
		{"fallback says why", "allow", nil, []candidate{none, software}, "soft+: soft0", "falling back to software verbs: ibv: no library"},
		{"no devices", "allow", nil, []candidate{empty, software}, "soft+: soft0", "ibv: no device found"},
		{"soft by choice", "allow", nil, []candidate{software}, "soft: soft0", "as devices.providers asks"},
		{"soft preferred", "allow", nil, []candidate{software, hardware}, "soft: soft0", ""},
		{"forbidden", "forbid", nil, []candidate{none, software}, "", "no library; install it; soft: devices.fallback is forbid; see `mover doctor`, or set devices.fallback: allow"},
		{"by name", "allow", []string{"mlx5_1"}, []candidate{hardware, software}, "ibv: mlx5_1", ""},
		{"by name, of the second", "allow", []string{"soft0"}, []candidate{hardware, software}, "soft+: soft0", "falling back to software verbs: ibv: none of its devices (mlx5_0, mlx5_1) is in devices.names"},
		{"by a name nobody has", "allow", []string{"x"}, []candidate{hardware, software}, "", "change devices.providers or devices.names"},
		{"by a name nobody has, and one", "allow", []string{"mlx5_1", "x"}, []candidate{hardware, software}, "", "devices.names: x is not a device, interface or address of ibv, which has mlx5_0, mlx5_1; correct"},
		{"no fallback asked for", "allow", nil, []candidate{none}, "", "ibv: no library; install it; see `mover doctor`"},
		{"a port nobody has", "allow", []string{"mlx5_1:2"}, []candidate{hardware}, "", "none of its devices"},
		{"Soft-RoCE is said to be software", "forbid", nil, []candidate{{name: "ibv", provider: emulated}}, "ibv: rxe0", "ibv has devices, and each is software on this host's CPUs (rxe0)"},
		{"one cannot be opened", "allow", nil, []candidate{half, software}, "ibv: mlx5_1", "ibv has devices"},
		{"none can be opened", "allow", nil, []candidate{broken, software}, "soft+: soft0", "ibv: device mlx5_0 cannot be opened: /dev/infiniband/uverbs7: permission denied; device mlx5_1 cannot be opened: /dev/infiniband/uverbs7: permission denied"},
		{"none can be opened, forbid", "forbid", nil, []candidate{broken, software}, "", "no device to use: ibv: device mlx5_0 cannot be opened: /dev/infiniband/uverbs7: permission denied; open it"},
		{"the named one cannot be opened", "forbid", []string{"mlx5_0"}, []candidate{half, software}, "", "ibv: device mlx5_0 cannot be opened: /dev/infiniband/uverbs7: permission denied; open it"},
	} {
		cfg := config.Default()
		cfg.Devices.Fallback, cfg.Devices.Names = c.fallback, c.names
		s, err := choose(cfg, c.candidates)
		got := ""
		text := s.Reason
		if err != nil {
			text = err.Error()
			if !errors.Is(err, ErrNoDevice) {
				t.Errorf("%s: %v", c.name, err)
			}
		} else {
			got = s.Provider.Name()
			if s.Fallback {
				got += "+"
			}
			got += ": " + namesOf(s.Used())
		}
		if got = strings.ReplaceAll(got, ",", ""); got != c.want || !strings.Contains(text, c.reason) {
			t.Errorf("%s: got %q (%s), want %q (%s)", c.name, got, text, c.want, c.reason)
		}
		if strings.Contains(text, "\n") {
			t.Errorf("%s: more than a line: %s", c.name, text)
		}
		for _, d := range s.Devices {
			if d.Why == "" {
				t.Errorf("%s: %s has no reason", c.name, d.Name)
			}
			if d.Used && d.Problem != nil {
				t.Errorf("%s: %s is used in spite of %v", c.name, d.Name, d.Problem)
			}
		}
	}
}

// TestNames selects by device, interface and address, on a host with all kinds.
func TestNames(t *testing.T) {
	f := newFixture(t)
	f.infiniband()
	f.roceUp("mlx5_2", "eth2", "192.0.2.2", "192.0.2.3")
	f.port("mlx5_3", 1, "4: ACTIVE", "InfiniBand", gid{0, "fe80::9", "IB/RoCE v1", ""})
	f.port("mlx5_3", 2, "4: ACTIVE", "Ethernet", roce("eth3", "fe80::3", "2001:db8::3")...)
	f.node("mlx5_3")
	vlan := append(roce("eth4", "fe80::4", "::ffff:192.0.2.4"), gid{8, "::ffff:198.51.100.4", "RoCE v2", "eth4.100"})
	f.port("mlx5_4", 1, "4: ACTIVE", "Ethernet", vlan...)
	f.node("mlx5_4")
	f.rxe("arxe", "eth2", "192.0.2.2") // sorts before, and over the same interface
	f.rxeDown("rxe9", "eth9")
	f.addresses[netip.MustParseAddr("198.51.100.9")] = "eth9"
	p := provider("ibv", "arxe", "mlx5_0", "mlx5_2", "mlx5_3", "mlx5_4", "rxe9")
	p.infos[0].Software, p.infos[5].Software = true, true
	p.infos[3].Ports = 2
	hardware := f.hardware(func() (verbs.Provider, error) { return p, nil })
	if hardware.missing != nil {
		t.Fatal(hardware.missing)
	}
	for _, c := range []struct {
		names string
		want  string // device:ports=wish of those used, or the error
	}{
		{"", "arxe:1 mlx5_0:1 mlx5_2:1 mlx5_3:1 mlx5_3:2 mlx5_4:1 rxe9:1"},
		{"mlx5_2", "mlx5_2:1"},
		{"mlx5_3:2", "mlx5_3:2"},
		{"mlx5_3:3", "none of its devices"},
		{"eth2", "mlx5_2:1"}, // hardware before Soft-RoCE
		{"eth3", "mlx5_3:2"},
		{"eth3:2", "mlx5_3:2"},
		{"eth3:1", "none of its devices"},
		{"ib0", "mlx5_0:1"},
		{"eth4", "mlx5_4:1=192.0.2.4"}, // not that of the VLAN
		{"eth4.100", "mlx5_4:1=198.51.100.4"},
		{"192.0.2.3", "mlx5_2:1=192.0.2.3"},
		{"2001:db8::3", "mlx5_3:2=2001:db8::3"},
		{"192.0.2.10", "mlx5_0:1=192.0.2.10"},   // IPoIB
		{"198.51.100.9", "rxe9:1=198.51.100.9"}, // the port is down
		{"mlx5_3 2001:db8::3", "mlx5_3:1 mlx5_3:2=2001:db8::3"},
		{"eth2 eth3 rxe9", "mlx5_2:1 mlx5_3:2 rxe9:1"},
		{"192.0.2.2 192.0.2.3", "192.0.2.2 and 192.0.2.3 are addresses of one port"},
		{"203.0.113.1", "none of its devices"},
		{"mlx5_2 203.0.113.1", "devices.names: 203.0.113.1 is not a device, interface or address of ibv, which has arxe (port 1: eth2), mlx5_0 (port 1: ib0)"},
	} {
		cfg := config.Default()
		cfg.Devices.Names = strings.Fields(c.names)
		s, err := choose(cfg, []candidate{hardware})
		if err != nil {
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("%q: %v; want %s", c.names, err, c.want)
			}
			continue
		}
		var got []string
		for _, d := range s.Used() {
			for n := uint8(1); int(n) <= d.Ports; n++ {
				if !s.UsesPort(d.Name, n) {
					continue
				}
				text := d.Name + ":" + string('0'+n)
				if w := s.Wish(d.Name, n); w.Addr.IsValid() {
					text += "=" + w.Addr.String()
				}
				got = append(got, text)
			}
		}
		if text := strings.Join(got, " "); text != c.want {
			t.Errorf("%q: %s; want %s", c.names, text, c.want)
		}
	}
}

func TestSoftByAddress(t *testing.T) {
	cfg := config.Default()
	cfg.Devices.Providers, cfg.Devices.Names = []string{"soft"}, []string{"127.0.0.2"}
	cfg.Soft.Addresses = []string{"127.0.0.1", "127.0.0.2"}
	s, err := Select(cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := namesOf(s.Used()); got != "soft1" {
		t.Errorf("%s; want soft1", got)
	}
}

func TestSelectSoft(t *testing.T) {
	cfg := config.Default()
	cfg.Devices.Providers = []string{"soft"}
	cfg.Soft.Addresses = []string{"127.0.0.1", "127.0.0.2"}
	s, err := Select(cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Used()) != 2 || s.Fallback || s.Provider.Name() != "soft" || len(s.Problems()) != 0 {
		t.Errorf("%+v", s)
	}
	if s.MemlockNeed(1<<30) != 0 || s.CheckMemlock(cfg) != nil {
		t.Error("software verbs lock memory")
	}

	// 192.0.2.0/24 is for documentation (RFC 5737): no host has it.
	cfg.Soft.Addresses, cfg.Soft.AllowCleartext = []string{"127.0.0.1", "192.0.2.77"}, true
	if s, err = Select(cfg, nil); err != nil {
		t.Fatal(err)
	}
	if namesOf(s.Used()) != "soft0" || len(s.Problems()) != 1 || !strings.Contains(s.Problems()[0].Error(), "192.0.2.77 is not an address of this host; add it") {
		t.Errorf("%+v", s.Devices)
	}
	cfg.Soft.Addresses = []string{"192.0.2.77"}
	if _, err = Select(cfg, nil); !errors.Is(err, ErrNoDevice) || !strings.Contains(err.Error(), "correct soft.addresses") {
		t.Error(err)
	}
}

// TestHardwareIsExplained: each thing that is missing has a line of its own.
func TestHardwareIsExplained(t *testing.T) {
	for _, c := range []struct {
		name string
		make func(f *fixture) (*listed, error)
		want []string
	}{
		{"nothing", func(*fixture) (*listed, error) { return nil, nil }, []string{"ibv: this host has no RDMA device; load its driver"}},
		{"a device was there", func(f *fixture) (*listed, error) { return nil, os.MkdirAll(f.class(), 0o755) },
			[]string{"no RDMA device; look whether the adapter's driver is bound"}},
		{"no module", func(f *fixture) (*listed, error) {
			f.port("rxe0", 1, "4: ACTIVE", "Ethernet")
			return f.checked("rxe0"), nil
		}, []string{"this host has rxe0, but the kernel module ib_uverbs is not loaded; modprobe ib_uverbs"}},
		{"no library", func(f *fixture) (*listed, error) {
			f.rxe("rxe0", "eth0", "192.0.2.1")
			return nil, &ibv.LibraryError{Library: "libibverbs.so.1", Reason: "no such file"}
		}, []string{"this host has rxe0, but ibv: libibverbs.so.1 can't be opened: no such file"}},
		{"no driver of the library", func(f *fixture) (*listed, error) {
			f.rxe("rxe0", "eth0", "192.0.2.1")
			l := provider("ibv", "rxe0")
			l.check = func(name string) error {
				return &ibv.DeviceError{Device: name, Node: "/dev/infiniband/uverbs0", Errno: syscall.ENODEV, Hint: "install the user-space drivers"}
			}
			return l, nil
		}, []string{"device rxe0 cannot be opened: /dev/infiniband/uverbs0: no such device; install the user-space drivers"}},
		{"no node", func(f *fixture) (*listed, error) {
			f.rxe("rxe0", "eth0", "192.0.2.1")
			return f.checked("rxe0"), os.RemoveAll(f.Dev)
		}, []string{"device rxe0 cannot be opened: ", "uverbs0: no such file or directory; the node is missing: in a container pass --device /dev/infiniband"}},
		{"no node in this namespace", func(f *fixture) (*listed, error) {
			f.rxe("rxe1", "eth0", "192.0.2.1")
			f.port("rxe0", 1, "4: ACTIVE", "Ethernet")
			return f.checked("rxe0", "rxe1"), os.RemoveAll(f.Dev)
		}, []string{"device rxe0 cannot be opened: ib_uverbs has no node for it in this network namespace; share the host's network with the container, or: rdma dev set rxe0 netns"}},
	} {
		f := newFixture(t)
		p, failed := c.make(f)
		for _, fallback := range []string{"forbid", "allow"} {
			cfg := config.Default()
			cfg.Devices.Fallback = fallback
			hardware := f.hardware(func() (verbs.Provider, error) { return p, failed })
			s, err := choose(cfg, []candidate{hardware, {name: "soft", provider: provider("soft", "soft0")}})
			text := s.Reason
			fixes := err != nil
			if (err == nil) != (fallback == "allow") || err != nil && !errors.Is(err, ErrNoDevice) {
				t.Errorf("%s, %s: %v", c.name, fallback, err)
				continue
			}
			if err != nil {
				text = err.Error()
			} else if !s.Fallback {
				t.Errorf("%s: no fallback", c.name)
			}
			for _, d := range must(f.Devices()) {
				if !slices.ContainsFunc(s.Devices, func(x Device) bool { return x.Name == d.Name && !x.Used && x.Why != "" }) {
					t.Errorf("%s, %s: %s is not listed", c.name, fallback, d.Name)
				}
			}
			for _, want := range c.want {
				if !fixes {
					want, _, _ = strings.Cut(want, ";") // a reason has no fix
				}
				if !strings.Contains(text, want) {
					t.Errorf("%s, %s: %s\nlacks: %s", c.name, fallback, text, want)
				}
			}
		}
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// TestLibraryOfTheSetting: devices.libibverbs is what is opened.
func TestLibraryOfTheSetting(t *testing.T) {
	want := "this host has rxe0, but ibv: /nowhere/libibverbs.so.1 can't be opened"
	if err := ibv.Available(); err != nil {
		want = err.Error() // a build that can open none
	}
	f := newFixture(t)
	f.rxe("rxe0", "eth0", "192.0.2.1")
	cfg := config.Default()
	cfg.Devices.Providers, cfg.Devices.Libibverbs = []string{"ibv"}, "/nowhere/libibverbs.so.1"
	_, err := f.Select(cfg, nil)
	if !errors.Is(err, ErrNoDevice) || !strings.Contains(err.Error(), want) {
		t.Error(err)
	}
}

// TestVirtualDevicesNode: a Soft-RoCE device is on the NUMA node of the
// hardware under its interface.
func TestVirtualDevicesNode(t *testing.T) {
	f := newFixture(t)
	f.rxe("rxe0", "eth0", "192.0.2.1")
	f.file("1", f.Sys, "devices/pci0000:80/0000:80:01.0/numa_node")
	f.file("", f.Sys, "devices/pci0000:80/0000:80:01.0/virtio3/uevent")
	if err := os.Symlink(f.Sys+"/devices/pci0000:80/0000:80:01.0/virtio3", f.Sys+"/class/net/eth0/device"); err != nil {
		t.Fatal(err)
	}
	p := f.checked()
	p.infos = must(ibv.HostDevices(f.Sys))
	s, err := choose(config.Default(), []candidate{f.hardware(func() (verbs.Provider, error) { return p, nil })})
	if err != nil || len(s.Used()) != 1 {
		t.Fatal(s, err)
	}
	d := s.Used()[0]
	if d.NUMANode != 1 || d.Netdev != "eth0" || !d.Software {
		t.Errorf("%+v", d)
	}
	two := &numa.Topology{Nodes: []numa.Node{{ID: 0}, {ID: 1}}}
	if NodeOf(two, d) != 1 || NodeOf(two, verbs.DeviceInfo{NUMANode: -1}) != 0 || NodeOf(two, verbs.DeviceInfo{NUMANode: 7}) != 0 {
		t.Error("NodeOf")
	}
}
