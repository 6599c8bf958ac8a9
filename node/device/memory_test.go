package device

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"mover/node/config"
	"mover/numa"
	"mover/verbs"
)

// using is a selection of these devices.
func using(infos ...verbs.DeviceInfo) *Selection {
	s := &Selection{}
	for _, i := range infos {
		s.Devices = append(s.Devices, Device{DeviceInfo: i, Used: true})
	}
	return s
}

func TestMemlockNeed(t *testing.T) {
	// Each device registers the arena of its own node, whether or not another
	// device registers the same memory; Soft-RoCE pins as hardware does.
	s := using(verbs.DeviceInfo{Provider: "ibv", Name: "mlx5_0"}, verbs.DeviceInfo{Provider: "ibv", Name: "rxe0", Software: true, NUMANode: 1})
	s.Devices = append(s.Devices, Device{DeviceInfo: verbs.DeviceInfo{Provider: "ibv", Name: "mlx5_9"}})
	if got := s.MemlockNeed(1 << 30); got != 2*(1<<30+queueBytes) {
		t.Error(got)
	}
}

func TestHugePages(t *testing.T) {
	page := func(size, free, total int64) []numa.HugePages {
		return []numa.HugePages{{PageBytes: 2 << 20}, {PageBytes: size, Free: free, Total: total}}
	}
	topology := &numa.Topology{Nodes: []numa.Node{{ID: 0, HugePages: page(2<<20, 0, 0)}, {ID: 1, HugePages: page(2<<20, 63, 100)}}}
	s := using(verbs.DeviceInfo{NUMANode: 1})
	cfg := config.Default()
	cfg.Memory.Arena = 128 << 20
	for setting, want := range map[string]string{
		"auto": "", "none": "", "transparent": "",
		"2MiB": "memory.hugepages is 2MiB, and NUMA node 1 has 63 of the 64 pages needed free; echo 101 > /sys/devices/system/node/node1/hugepages/hugepages-2048kB/nr_hugepages, or set memory.hugepages: auto",
		"1GiB": "NUMA node 1 has 0 of the 1 pages needed free; echo 1 > /sys/devices/system/node/node1/hugepages/hugepages-1048576kB/nr_hugepages (or boot with hugepagesz=1G",
	} {
		cfg.Memory.HugePages = setting
		err := s.CheckHugePages(cfg, topology)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v", setting, err)
		}
		var typed *HugePagesError
		if err != nil && !errors.As(err, &typed) {
			t.Errorf("%s: %T", setting, err)
		}
	}
	// Two nodes whose memory is in one place share its pages.
	topology.Nodes[1].HugePages = page(2<<20, 64, 100)
	topology.Nodes[0].Memoryless = true
	cfg.Memory.HugePages = "2MiB"
	if err := s.CheckHugePages(cfg, topology); err != nil {
		t.Error(err)
	}
	both := using(verbs.DeviceInfo{NUMANode: 1}, verbs.DeviceInfo{NUMANode: 0})
	if err := both.CheckHugePages(cfg, topology); err == nil || !strings.Contains(err.Error(), "64 of the 128") {
		t.Error(err)
	}
}

// asNobody runs a test again as an ordinary user without capabilities, since
// neither modes nor limits bind root. It reports whether this is that run.
func asNobody(t *testing.T, env ...string) bool {
	t.Helper()
	const nobody = 65534
	if os.Getenv("MOVER_TEST_AS_NOBODY") != "" {
		return true
	}
	if os.Getuid() != 0 {
		return true // an ordinary user already
	}
	// The test binary is in a directory that others may not enter.
	dir, err := os.MkdirTemp("", "mover-nobody-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	self := must(os.Executable())
	program := filepath.Join(dir, "test")
	if err := os.WriteFile(program, must(os.ReadFile(self)), 0o755); err != nil {
		t.Fatal(err)
	}
	c := exec.Command(program, "-test.run=^"+t.Name()+"$", "-test.v")
	c.Dir = dir
	c.Env = append(os.Environ(), append(env, "MOVER_TEST_AS_NOBODY=1", "TMPDIR=/tmp")...)
	c.SysProcAttr = &unix.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := c.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("as an ordinary user: %v\n%s", err, out)
	}
	return false
}

func TestMemlockOfAnOrdinaryUser(t *testing.T) {
	if !asNobody(t) {
		return
	}
	const limit, arena = 1 << 20, 64 << 20
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &old); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Setrlimit(unix.RLIMIT_MEMLOCK, &old) }()
	if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: limit, Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	// The limit binds this process: plain mlock fails.
	memory, err := unix.Mmap(-1, 0, 2*limit, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(memory) //nolint:errcheck // the test ends
	if err := unix.Mlock(memory); !errors.Is(err, unix.ENOMEM) && !errors.Is(err, unix.EPERM) {
		t.Fatalf("mlock of %d bytes with a limit of %d: %v", len(memory), limit, err)
	}
	runtime.KeepAlive(memory)
	cfg := config.Default()
	cfg.Memory.Arena = arena
	err = using(verbs.DeviceInfo{Provider: "ibv", Name: "rxe0"}, verbs.DeviceInfo{Provider: "ibv", Name: "rxe1"}).CheckMemlock(cfg)
	if !errors.Is(err, numa.ErrMemlock) {
		t.Fatal(err)
	}
	for _, want := range []string{"memory.arena of 64MiB registered with rxe0, rxe1", "needs 144 MiB", "the limit is 1 MiB", "LimitMEMLOCK=infinity"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v\nlacks %s", err, want)
		}
	}
	if err := using(verbs.DeviceInfo{Provider: "soft", Name: "soft0"}).CheckMemlock(cfg); err != nil {
		t.Error(err)
	}
}

func TestNodeThatAnOrdinaryUserMayNotOpen(t *testing.T) {
	if !asNobody(t) {
		return
	}
	f := newFixture(t)
	f.rxe("rxe0", "eth0", "192.0.2.1")
	path := filepath.Join(f.Dev, "infiniband/uverbs0")
	if err := os.Chmod(path, 0o400); err != nil {
		t.Fatal(err)
	}
	// The mode binds this process: plain open fails.
	if _, err := os.OpenFile(path, os.O_RDWR, 0); !errors.Is(err, os.ErrPermission) {
		t.Fatal(err)
	}
	cfg := config.Default()
	cfg.Devices.Providers = []string{"ibv"}
	hardware := f.hardware(func() (verbs.Provider, error) { return f.checked("rxe0"), nil })
	_, err := choose(cfg, []candidate{hardware})
	want := fmt.Sprintf("device rxe0 cannot be opened: %s: permission denied; mover's user may not open it: add it to the node's group", path)
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v; want %s", err, want)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := choose(cfg, []candidate{hardware}); err != nil {
		t.Error(err)
	}
}
