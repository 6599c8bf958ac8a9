//go:build linux && cgo

package ibv

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestLibraryMissing(t *testing.T) {
	if err := Available(); err != nil {
		t.Skip(err)
	}
	missing := filepath.Join(t.TempDir(), "libibverbs.so.9")
	_, err := New(Config{Library: missing})
	var lib *LibraryError
	if !errors.Is(err, ErrUnavailable) || !errors.As(err, &lib) || lib.Library != missing || lib.Symbol != "" {
		t.Fatalf("New without a library: %#v", err)
	}
	for _, part := range []string{missing, "libibverbs1", "RHEL", "No such file"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("message %q lacks %q", err, part)
		}
	}
}

// TestLibraryIsNoFile: a FIFO that nobody writes to must not stop the process.
func TestLibraryIsNoFile(t *testing.T) {
	if err := Available(); err != nil {
		t.Skip(err)
	}
	fifo := filepath.Join(t.TempDir(), "libibverbs.so.1")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{fifo, filepath.Dir(fifo), os.DevNull} {
		_, err := New(Config{Library: path})
		var lib *LibraryError
		if !errors.As(err, &lib) || lib.Library != path || lib.Reason != "not a file" {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// TestSymbols: a symbol that is missing, or there with another version only,
// is named; one that is optional is done without.
func TestSymbols(t *testing.T) {
	versions := fakeVersions(t)
	for _, c := range []struct {
		name, versions, want string
		flags                []string
	}{
		{"all", versions, "", nil},
		{"symbol missing", strings.Replace(versions, "\t\tibv_reg_mr;\n", "", 1), "ibv_reg_mr@IBVERBS_1.1", []string{"-DOMIT_REG_MR"}},
		{"other version", strings.Replace(versions, "\t\tibv_create_qp;\n", "", 1) +
			"\nIBVERBS_9.9 {\n\tglobal:\n\t\tibv_create_qp;\n} IBVERBS_1.11;\n", "ibv_create_qp@IBVERBS_1.1", nil},
		{"no optional symbols", versions[:strings.Index(versions, "IBVERBS_1.8")], "", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFakeOf(t, buildFake(t, c.versions, c.flags...))
			_, err := New(f.cfg)
			if c.want == "" {
				must(t, err)
				return
			}
			var lib *LibraryError
			if !errors.Is(err, ErrUnavailable) || !errors.As(err, &lib) || lib.Symbol != c.want {
				t.Errorf("New: %v, want a LibraryError for %s", err, c.want)
			}
		})
	}
}

// TestOldLibrary: without the optional symbols the GID table comes entry by
// entry with types from sysfs, and relaxed ordering is left out.
func TestOldLibrary(t *testing.T) {
	versions := fakeVersions(t)
	f := newFakeOf(t, buildFake(t, versions[:strings.Index(versions, "IBVERBS_1.8")]))
	f.write("sys/class/infiniband/fake0/ports/1/gid_attrs/types/1", "RoCE v2")
	d := f.open()
	if attr, err := d.QueryDevice(); err != nil || attr.RelaxedOrdering {
		t.Errorf("%+v, %v: relaxed ordering without ibv_reg_mr_iova2", attr, err)
	}
	table, err := d.QueryGIDTable(1)
	if err != nil || len(table) != 1 || table[0].Type.String() != "RoCE v2" || table[0].Netdev != "eth7" || table[0].Index != 1 {
		t.Errorf("table %+v, %v", table, err)
	}
	pd, err := d.AllocPD()
	must(t, err)
	mr, err := pd.RegMR(pages(t, 1), knownAccess)
	must(t, err)
	if f.get("IOVA2") != 0 || f.get("REG_ACCESS") != 0xf {
		t.Errorf("registered with %#x, want the optional flag dropped", f.get("REG_ACCESS"))
	}
	must(t, mr.Dereg())
	must(t, pd.Dealloc())
}

// TestOpen: each thing that keeps a device from being opened has a line of its
// own, and the device is listed all the same.
func TestOpen(t *testing.T) {
	for _, c := range []struct {
		name   string
		device string
		change func(f *fake)
		errno  syscall.Errno
		parts  []string
	}{
		{"no such device", "fake9", func(*fake) {}, 0, []string{"fake9", "this host has fake0"}},
		{"ib_uverbs not loaded", "fake0", func(f *fake) {
			f.set("HIDDEN", 1)
			must(f.t, os.RemoveAll(filepath.Join(f.tree, "sys/class/infiniband_verbs")))
		}, syscall.ENOENT, []string{"fake0", "modprobe ib_uverbs"}},
		{"node missing", "fake0", func(f *fake) {
			f.set("HIDDEN", 1)
			must(f.t, os.RemoveAll(filepath.Join(f.tree, "dev/infiniband")))
		}, syscall.ENOENT, []string{"fake0", "dev/infiniband/uverbs0", "--device /dev/infiniband"}},
		{"node of nothing", "fake0", func(f *fake) {
			f.set("HIDDEN", 1)
			node := filepath.Join(f.tree, "dev/infiniband/uverbs0")
			must(f.t, os.Remove(node))
			must(f.t, os.Mkdir(node, 0o700))
		}, syscall.EISDIR, []string{"fake0", "uverbs0", "is a directory"}},
		{"no driver", "fake0", func(f *fake) { f.set("HIDDEN", 1) }, syscall.ENODEV, []string{"fake0", "ibverbs-providers"}},
		{"driver fails", "fake0", func(f *fake) { f.set("OPEN_ERRNO", uint64(syscall.ENOMEM)) }, syscall.ENOMEM,
			[]string{"fake0", "uverbs0", "dmesg"}},
		{"list fails", "fake0", func(f *fake) { f.set("LIST_ERRNO", uint64(syscall.EPERM)) }, syscall.EPERM, []string{"fake0", "dmesg"}},
		{"query fails", "fake0", func(f *fake) { f.set("DEVICE_ERRNO", uint64(syscall.EIO)) }, syscall.EIO, []string{"fake0", "query device"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFake(t)
			c.change(f)
			p := f.provider()
			infos, err := p.Devices()
			if err != nil || len(infos) != 1 || infos[0].Name != "fake0" {
				t.Fatalf("devices %+v, %v", infos, err)
			}
			ctx, err := p.OpenDevice(c.device)
			if err == nil || ctx != nil {
				t.Fatalf("opened %v, %v", ctx, err)
			}
			if c.errno != 0 && !errors.Is(err, c.errno) {
				t.Errorf("error %v is not %v", err, c.errno)
			}
			if (c.errno == 0) != errors.Is(err, ErrNoDevice) {
				t.Errorf("error %v: ErrNoDevice?", err)
			}
			for _, part := range c.parts {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("message %q lacks %q", err, part)
				}
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("message of several lines: %q", err)
			}
		})
	}
}

// TestBuildsWithout: a build without cgo, and one without the header, start
// and say what they lack; sysfs is read all the same.
func TestBuildsWithout(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the compiler")
	}
	f := newFake(t)
	for _, c := range []struct{ name, env, want string }{
		{"cgo", "CGO_ENABLED=0", "built without cgo"},
		{"the header", "CGO_CFLAGS=-O2 -DMOVER_NO_VERBS_H", "built without infiniband/verbs.h"},
	} {
		t.Run(c.name, func(t *testing.T) {
			probe := filepath.Join(t.TempDir(), "probe")
			build := exec.Command("go", "build", "-buildvcs=false", "-o", probe, "./testdata/probe")
			build.Env = append(os.Environ(), c.env)
			if out, err := build.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			out, err := exec.Command(probe, f.cfg.Library, f.cfg.Sys).CombinedOutput()
			must(t, err)
			if s := string(out); !strings.HasPrefix(s, "true ") || !strings.Contains(s, c.want) || !strings.Contains(s, "libibverbs-dev") ||
				!strings.HasSuffix(s, "\n1 <nil>\n") {
				t.Errorf("the probe says %q", s)
			}
		})
	}
}

// TestCheck: what Check finds without libibverbs.
func TestCheck(t *testing.T) {
	f := newFake(t)
	if err := Check(f.cfg.Sys, f.cfg.Dev, "fake0"); err != nil {
		t.Errorf("a node that opens: %v", err)
	}
	must(t, os.Remove(filepath.Join(f.tree, "dev/infiniband/uverbs0")))
	var e *DeviceError
	if err := Check(f.cfg.Sys, f.cfg.Dev, "fake0"); !errors.As(err, &e) || e.Errno != syscall.ENOENT || e.Hint != hintNoNode {
		t.Errorf("a missing node: %v", err)
	}
	err := Check(t.TempDir(), f.cfg.Dev, "fake0")
	if !errors.Is(err, ErrNoDevice) || !strings.Contains(err.Error(), "none at all") {
		t.Errorf("a host without RDMA: %v", err)
	}
}

// TestHints: each errno of open(2) has its remedy. Modes cannot be tried as
// root, who may open everything.
func TestHints(t *testing.T) {
	for errno, want := range map[syscall.Errno]string{syscall.EACCES: hintMode, syscall.EPERM: hintCgroup,
		syscall.ENOENT: hintNoNode, syscall.ENXIO: hintUnknown} {
		if got := hintFor(errno); got != want {
			t.Errorf("%v: %q, want %q", errno, got, want)
		}
	}
}
