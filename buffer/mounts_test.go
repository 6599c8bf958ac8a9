package buffer

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestHugeMounts(t *testing.T) {
	const text = `sysfs /sys sysfs rw,nosuid 0 0
hugetlbfs /dev/hugepages hugetlbfs rw,relatime,pagesize=2M 0 0
none /mnt/huge\0401G hugetlbfs rw,gid=5,mode=1770,pagesize=1024M,size=8192M 0 0
none /mnt/32M hugetlbfs rw,pagesize=64K 0 0
none /mnt/unknown hugetlbfs rw 0 0
none /mnt/odd hugetlbfs rw,pagesize=,pagesize=2,pagesize=M,pagesize=-2M,pagesize=99999999999G 0 0
hugetlbfs /mnt/tail
tmpfs /dev/shm tmpfs rw,pagesize=2M 0 0
none /mnt/back\134slash\011tab hugetlbfs rw,pagesize=2M 0 0
`
	want := []place{{dir: "/dev/hugepages", hugeBytes: 2 << 20}, {dir: "/mnt/huge 1G", hugeBytes: 1 << 30}, {dir: "/mnt/32M", hugeBytes: 64 << 10},
		{dir: "/mnt/back\\slash\ttab", hugeBytes: 2 << 20}}
	if diff := cmp.Diff(want, hugeMounts(text), cmp.AllowUnexported(place{})); diff != "" {
		t.Error(diff)
	}
}

func FuzzHugeMounts(f *testing.F) {
	f.Add("a /b\\040c hugetlbfs rw,pagesize=2M 0 0\n")
	f.Add("a \\ hugetlbfs pagesize=1G x")
	f.Fuzz(func(t *testing.T, text string) {
		for _, m := range hugeMounts(text) {
			if m.hugeBytes <= 0 || m.dir == "" {
				t.Fatalf("%+v", m)
			}
		}
	})
}

// TestPlaces chooses on a host of two nodes, with and without mounts and pages.
func TestPlaces(t *testing.T) {
	h := newBootableHost(t)
	h.sysRoot = t.TempDir()
	mount, locked := t.TempDir(), t.TempDir()+"/file"
	if err := os.WriteFile(locked, nil, 0o600); err != nil { // no directory, which root can't use either
		t.Fatal(err)
	}
	pool := func(total, free, reserved, free0, free1 int) {
		t.Helper()
		for dir, n := range map[string]int{"kernel/mm/hugepages": free, "devices/system/node/node0/hugepages": free0,
			"devices/system/node/node1/hugepages": free1} {
			dir = h.sysRoot + "/" + dir + "/hugepages-2048kB"
			err := os.MkdirAll(dir, 0o755)
			for file, n := range map[string]int{"nr_hugepages": total, "free_hugepages": n, "resv_hugepages": reserved} {
				err = errors.Join(err, os.WriteFile(dir+"/"+file, fmt.Appendln(nil, n), 0o644))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	r, _ := h.open(t)
	check := func(size PageSize, mib, node int, want string) {
		t.Helper()
		places, err := r.places(Spec{Name: "a", Bytes: int64(mib)<<20 - 1, PageSize: size, NUMANode: node})
		got := ""
		for _, p := range places {
			got += p.why + "; "
			if (p.hugeBytes > 0) != (p.dir == mount) || p.hugeBytes == 0 && p.dir != h.shmDir {
				t.Errorf("%+v", p)
			}
		}
		if err != nil {
			got = err.Error()
			if !errors.Is(err, ErrNoMount) {
				t.Errorf("%v", err)
			}
		}
		if !strings.Contains(got, want) {
			t.Errorf("%s, %d MiB, node %d: %q misses %q", size, mib, node, got, want)
		}
	}
	check(Page2M, 8, -1, "no hugetlbfs mount of 2MiB pages is known")
	h.proc(t, "mounts", "tmpfs /dev/shm tmpfs rw 0 0\nhugetlbfs "+locked+" hugetlbfs rw,pagesize=2M 0 0\n")
	uid := os.Geteuid()
	check(Page2M, 8, -1, fmt.Sprintf("mkdir -p /dev/hugepages-2MiB && mount -t hugetlbfs -o pagesize=2M,uid=%d,mode=0755 hugetlbfs /dev/hugepages-2MiB", uid))
	check(Page1G, 8, -1, fmt.Sprintf("mount -t hugetlbfs -o pagesize=1G,uid=%d,mode=0755 hugetlbfs /dev/hugepages-1GiB", uid))
	check(PageAuto, 8, -1, "base pages: no hugetlbfs mount of 2MiB pages")
	check(PageBase, 8, -1, "base pages, as asked for; ")
	check(Page2M, 8, -1, locked+": permission denied")

	h.proc(t, "mounts", "hugetlbfs /no/such/dir hugetlbfs rw,pagesize=2M 0 0\nhugetlbfs "+mount+" hugetlbfs rw,pagesize=2M 0 0\n")
	check(Page2M, 8, -1, "2MiB pages, as asked for; ")
	pool(16, 10, 6, 1, 3)
	check(PageAuto, 8, -1, "2MiB pages: "+mount+" has them free; base pages; ")
	check(PageAuto, 10, -1, "base pages: 5 huge pages of 2MiB are needed and 4 free; reserve more with vm.nr_hugepages; ")
	check(PageAuto, 6, 1, "2MiB pages: ")
	check(PageAuto, 8, 1, "4 huge pages of 2MiB are needed and 3 free")
	check(PageAuto, 4, 0, "2 huge pages of 2MiB are needed and 1 free")
	check(PageAuto, 2, 0, "base pages: smaller than a huge page; ")
	check(Page2M, 100, 0, "2MiB pages, as asked for; ") // the kernel has the word
}

// TestAutoFallsBack: the mount that looked roomy takes no files after all, and /dev/shm does.
func TestAutoFallsBack(t *testing.T) {
	h := newBootableHost(t)
	h.sysRoot = t.TempDir()
	dir := h.sysRoot + "/kernel/mm/hugepages/hugepages-2048kB"
	err := os.MkdirAll(dir, 0o755)
	for _, file := range []string{"nr_hugepages", "free_hugepages", "resv_hugepages"} {
		n := "8\n"
		if file == "resv_hugepages" {
			n = "0\n"
		}
		err = errors.Join(err, os.WriteFile(dir+"/"+file, []byte(n), 0o644))
	}
	if err != nil {
		t.Fatal(err)
	}
	// Root may make files there, and can't.
	h.proc(t, "mounts", "hugetlbfs /proc/self/fd hugetlbfs rw,pagesize=2M 0 0\n")
	r, _ := h.open(t)
	s := small("a")
	s.PageSize, s.Bytes = PageAuto, 3<<20
	info := create(t, r, s)
	if !strings.HasPrefix(info.Path, h.shmDir) || !strings.HasPrefix(info.PageReason, "base pages") {
		t.Errorf("%+v", info)
	}
	if os.Geteuid() == 0 && !strings.Contains(info.PageReason, "because of /proc/self/fd: create /proc/self/fd/mover.host-a.a") {
		t.Errorf("%q", info.PageReason)
	}
	h.wantFiles(t, "a")
}
