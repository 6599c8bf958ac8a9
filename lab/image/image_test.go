package image

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// dep has the form of Debian's: a module's line has all it needs, deepest last.
const dep = `kernel/drivers/infiniband/sw/rxe/rdma_rxe.ko: kernel/drivers/infiniband/core/ib_uverbs.ko kernel/drivers/infiniband/core/ib_core.ko kernel/net/ipv4/udp_tunnel.ko
kernel/drivers/infiniband/core/ib_uverbs.ko: kernel/drivers/infiniband/core/ib_core.ko
kernel/drivers/infiniband/core/ib_core.ko:
kernel/net/ipv4/udp_tunnel.ko:
kernel/arch/x86/crypto/crc32-pclmul.ko:
kernel/other/udp_tunnel.ko.xz:
`

func TestLoadOrder(t *testing.T) {
	order, err := loadOrder(parseWanted("# first\ncrc32_pclmul\nrdma_rxe debug=1  # last\nvirtio\nib_core\n\n"),
		strings.Replace(dep, "kernel/other/udp_tunnel.ko.xz:\n", "", 1), "kernel/drivers/virtio/virtio.ko\n")
	if err != nil {
		t.Fatal(err)
	}
	place := map[string]int{}
	for i, m := range order {
		place[filepath.Base(m.name)] = i
	}
	if len(order) != 5 || len(place) != 5 {
		t.Fatalf("%d modules, %v; want each of five once", len(order), place)
	}
	for _, before := range [][2]string{{"ib_core.ko", "ib_uverbs.ko"}, {"ib_uverbs.ko", "rdma_rxe.ko"}, {"udp_tunnel.ko", "rdma_rxe.ko"}, {"crc32-pclmul.ko", "rdma_rxe.ko"}} {
		if place[before[0]] >= place[before[1]] {
			t.Errorf("%s is not before %s: %v", before[0], before[1], order)
		}
	}
	list, err := orderFile(order)
	if err != nil || !bytes.HasSuffix(list, []byte("\nrdma_rxe.ko debug=1\n")) || !bytes.HasPrefix(list, []byte("crc32-pclmul.ko\n")) {
		t.Errorf("%q, %v", list, err)
	}
}

func TestLoadOrderRefuses(t *testing.T) {
	if _, err := loadOrder([]wanted{{name: "nosuch"}}, dep, ""); err == nil || !strings.Contains(err.Error(), "nosuch") {
		t.Errorf("a module that is missing: %v", err)
	}
	if _, err := loadOrder(nil, "no colon\n", ""); err == nil {
		t.Error("a line that is none passes")
	}
	if _, err := orderFile([]wanted{{name: "a/x.ko"}, {name: "b/x.ko"}}); err == nil {
		t.Error("two files of one name pass")
	}
}

// TestModulesText: an rxe link needs the kernel's crc32, and the guest its
// devices.
func TestModulesText(t *testing.T) {
	place := map[string]int{}
	for i, m := range parseWanted(modulesText) {
		place[m.name] = i + 1
	}
	for _, name := range []string{"crc32_generic", "virtio_console", "9pnet_virtio", "9p", "virtio_net", "rdma_rxe", "sch_netem"} {
		if place[name] == 0 {
			t.Errorf("no %s", name)
		}
	}
	if place["crc32_generic"] > place["rdma_rxe"] {
		t.Error("rdma_rxe before crc32_generic")
	}
}

func TestArchive(t *testing.T) {
	var b bytes.Buffer
	a := &archive{w: &b}
	a.directory("dev")
	a.character("dev/console", 0o600, 5, 1)
	a.file("init", 0o755, []byte("#!/bin/sh\n"))
	a.file("empty", 0o644, nil)
	if err := a.close(); err != nil {
		t.Fatal(err)
	}
	if b.Len()%4 != 0 {
		t.Errorf("%d bytes are not a multiple of four", b.Len())
	}
	header := "07070100000003000081ED00000000000000000000000100000000" + "0000000A" + "00000000" + "00000000" + "00000000" + "00000000" + "00000005" + "00000000" + "init\x00"
	if !bytes.Contains(b.Bytes(), []byte(header)) {
		t.Errorf("no entry of init in\n%q", b.Bytes())
	}
	cpio, err := exec.LookPath("cpio")
	if err != nil {
		return // the format was compared above
	}
	cmd := exec.Command(cpio, "-tv", "--numeric-uid-gid", "--quiet")
	cmd.Stdin = &b
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("cpio: %v: %s", err, out)
	}
	var lines []string
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		lines = append(lines, fields[0]+" "+fields[len(fields)-1])
	}
	want := []string{"drwxr-xr-x dev", "crw------- dev/console", "-rwxr-xr-x init", "-rw-r--r-- empty"}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("cpio lists (-want +got):\n%s", diff)
	}
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("full") }

func TestArchiveWriteFails(t *testing.T) {
	a := &archive{w: fullDisk{}}
	a.directory("dev")
	a.file("init", 0o755, nil)
	if err := a.close(); err == nil {
		t.Error("an archive that could not be written is whole")
	}
}

func TestParseApt(t *testing.T) {
	name, err := parseDepends("linux-image-amd64\n  Depends: linux-image-6.1.0-57-amd64\n")
	if err != nil || name != "linux-image-6.1.0-57-amd64" {
		t.Errorf("%q, %v", name, err)
	}
	for _, bad := range []string{"", "linux-image-amd64\n", "x\n  Depends: <linux-image>\n", "x\n  Depends: linux-image-\n"} {
		if name, err := parseDepends(bad); err == nil {
			t.Errorf("%q has %q", bad, name)
		}
	}
	version, err := parseVersion("Package: linux-image\nSource: linux-signed-amd64 (6.1.1)\nVersion: 6.1.192-3\nInstalled-Size: 1\n")
	if err != nil || version != "6.1.192-3" {
		t.Errorf("%q, %v", version, err)
	}
	if _, err := parseVersion("Package: x\nVersion:\n"); err == nil {
		t.Error("no version passes")
	}
	if s := (packageID{"linux", "1:2~rc1/3"}).escape(); strings.ContainsAny(s, ":~/") {
		t.Errorf("%q is no file name for all", s)
	}
}

// TestInitramfsKey: the image changes with each of its ingredients.
func TestInitramfsKey(t *testing.T) {
	if _, err := lookTool("busybox"); err != nil {
		// What goes in must be there; another test has the order and form.
		t.Log(err)
		return
	}
	k := kernel{dir: t.TempDir()}
	agent := filepath.Join(t.TempDir(), "agent")
	write := func(path, content string) {
		t.Helper()
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	write(agent, "agent 1")
	write(filepath.Join(k.dir, "modules/order"), "rdma_rxe.ko debug=1\n")
	write(filepath.Join(k.dir, "modules/rdma_rxe.ko"), "module 1")
	make := func() []byte {
		t.Helper()
		content, err := initramfs(k, agent)
		if err != nil {
			t.Fatal(err)
		}
		return content
	}
	first := make()
	if !bytes.Equal(first, make()) {
		t.Error("the same ingredients make another image")
	}
	write(agent, "agent 2")
	second := make()
	write(filepath.Join(k.dir, "modules/rdma_rxe.ko"), "module 2")
	if third := make(); bytes.Equal(first, second) || bytes.Equal(second, third) {
		t.Error("other ingredients make the same image")
	}
	write(filepath.Join(k.dir, "modules/order"), "missing.ko\n")
	if _, err := initramfs(k, agent); err == nil {
		t.Error("a missing module passes")
	}
}

func TestCacheKeepsFew(t *testing.T) {
	dir := t.TempDir()
	name := func(i int) string { return filepath.Join(dir, fmt.Sprintf("initramfs-%d.cpio", i)) }
	for i := range 5 {
		if err := replace(name(i), []byte{byte(i)}); err != nil {
			t.Fatal(err)
		}
		// Older the higher the number, so that names do not decide.
		when := time.Now().Add(-time.Duration(i) * time.Hour)
		if err := os.Chtimes(name(i), when, when); err != nil {
			t.Fatal(err)
		}
	}
	prune(dir, "initramfs-*.cpio", 2)
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 2 {
		t.Errorf("%d files left, %v", len(left), err)
	}
	for i := range 2 {
		if content, err := os.ReadFile(name(i)); err != nil || !bytes.Equal(content, []byte{byte(i)}) {
			t.Errorf("%d: %v, %v", i, content, err)
		}
	}
}
