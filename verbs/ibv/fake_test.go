//go:build linux && cgo

package ibv

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"mover/verbs"
)

// The layout of the page that the fake library shares with the test.
const (
	ctlBytes   = 128 << 10
	gidOffset  = 4096
	postOffset = 64 << 10
	postCount  = 128
	postBytes  = 128 + 4*16 // struct fake_post
)

// knobs are the numbers in the page; the header of the fake library is made
// from this list, so that the two can't differ.
var knobs = []string{"LIVE", "LIST_ERRNO", "HIDDEN", "OPEN_ERRNO", "DEVICE_ERRNO", "MAX_MR_SIZE", "OLD_CONTEXT", "STUB",
	"PORT_ERRNO", "PORT_STATE", "PORT_MTU", "PORT_LID", "PORT_WIDTH", "PORT_SPEED", "PORT_SPEED_EX", "PORT_FLAGS", "LINK_LAYER",
	"GID_COUNT", "GID_TABLE_ERRNO", "GID_EX_ERRNO", "EVENT_FD", "EVENTS", "ACKS", "CQ_ACK_CALLS", "CQ_ACKED", "UNACKED",
	"PD_ERRNO", "REG_ERRNO", "REG_SHORT", "REG_CALLS", "REG_ACCESS", "IOVA2", "AH_ERRNO", "AH_GLOBAL", "AH_HOPS", "AH_INDEX",
	"AH_LID", "AH_PORT", "AH_DGID_LAST", "AH_HANDLE", "CQ_ERRNO", "VECTOR", "LAST_CQ", "QP_ERRNO", "QP_CALLS", "ROUND_UP",
	"QP_FAILED", "QUERY_ERRNO", "DESTROY_ERRNO", "MODIFY_CALLS", "MODIFY_ERRNO", "MOD_MASK", "MOD_STATE", "MOD_MTU", "MOD_DEST",
	"MOD_RQ_PSN", "MOD_SQ_PSN", "MOD_ACCESS", "MOD_QKEY", "MOD_PKEY", "MOD_PORT", "MOD_RD", "MOD_DEST_RD", "MOD_RNR_TIMER",
	"MOD_TIMEOUT", "MOD_RETRY", "MOD_RNR_RETRY", "POST_CALLS", "POST_RET", "POST_SILENT", "POST_GOOD", "NEGATIVE", "POSTED",
	"HOLD", "WC_STATUS", "WC_FLAGS", "POLL_CALLS", "POLL_FAILS", "SOLICITED", "ARM_ERRNO"}

var knobIndex = func() map[string]int {
	m := map[string]int{}
	for i, k := range knobs {
		m[k] = i
	}
	return m
}()

// builds keeps the compiled libraries, one for each set of flags, in a folder
// that TestMain removes.
var builds struct {
	sync.Mutex
	dir  string
	libs map[string]string
}

// buildFake compiles the fake library once for each set of flags and map
// file. It skips where the header is missing.
func buildFake(t testing.TB, versions string, flags ...string) string {
	t.Helper()
	if err := Available(); err != nil {
		t.Skip(err)
	}
	builds.Lock()
	defer builds.Unlock()
	key := versions + strings.Join(flags, " ")
	if lib := builds.libs[key]; lib != "" {
		return lib
	}
	dir := filepath.Join(builds.dir, fmt.Sprint(len(builds.libs)))
	header := fmt.Sprintf("#define CTL_BYTES %d\n#define GID_OFFSET %d\n#define POST_OFFSET %d\n#define POSTS %d\nenum {\n",
		ctlBytes, gidOffset, postOffset, postCount)
	for _, k := range knobs {
		header += "\tK_" + k + ",\n"
	}
	must(t, os.Mkdir(dir, 0o700))
	must(t, os.WriteFile(filepath.Join(dir, "knobs.h"), []byte(header+"};\n"), 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "fake.map"), []byte(versions), 0o600))
	lib := filepath.Join(dir, "libfake.so")
	args := append([]string{"-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-I", dir, "-o", lib, "testdata/fake.c",
		"-Wl,--version-script=" + filepath.Join(dir, "fake.map")}, flags...)
	if out, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
		t.Fatalf("gcc %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	builds.libs[key] = lib
	return lib
}

func fakeVersions(t testing.TB) string {
	t.Helper()
	b, err := os.ReadFile("testdata/fake.map")
	must(t, err)
	return string(b)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// fake is a fake library of its own, with a fixture of sysfs and /dev beside
// it.
type fake struct {
	t    testing.TB
	ctl  []byte
	cfg  Config
	tree string
}

// newFake copies a compiled library and gives it one device, fake0: RoCE,
// active, MTU 4096, GID 1 of ten.
func newFake(t testing.TB) *fake { return newFakeOf(t, buildFake(t, fakeVersions(t))) }

func newFakeOf(t testing.TB, lib string) *fake {
	t.Helper()
	dir := t.TempDir()
	f := &fake{t: t, tree: dir, cfg: Config{Library: filepath.Join(dir, "libfake.so"), Sys: filepath.Join(dir, "sys"), Dev: filepath.Join(dir, "dev")}}
	code, err := os.ReadFile(lib)
	must(t, err)
	must(t, os.WriteFile(f.cfg.Library, code, 0o700))
	ctl, err := os.Create(f.cfg.Library + ".ctl")
	must(t, err)
	defer ctl.Close()
	must(t, ctl.Truncate(ctlBytes))
	f.ctl, err = unix.Mmap(int(ctl.Fd()), 0, ctlBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	must(t, err)
	t.Cleanup(func() {
		if live := f.get("LIVE"); live != 0 {
			t.Errorf("%d objects of libibverbs were left", live)
		}
		if n := f.get("UNACKED"); n != 0 {
			t.Errorf("%d objects were destroyed with events not acknowledged: libibverbs would wait for ever", n)
		}
		must(t, unix.Munmap(f.ctl))
	})
	for k, v := range map[string]uint64{"MAX_MR_SIZE": 1 << 30, "PORT_STATE": 4, "PORT_MTU": 5, "PORT_WIDTH": 2, "PORT_SPEED": 32,
		"LINK_LAYER": 2, "GID_COUNT": 10} {
		f.set(k, v)
	}
	f.gid(1, "::ffff:10.0.0.1", 2, 0)
	f.write("sys/class/infiniband/fake0/node_desc", "fake")
	f.write("sys/class/infiniband/fake0/device/numa_node", "1")
	f.write("sys/class/infiniband/fake0/ports/1/rate", "100 Gb/sec (4X EDR)")
	f.write("sys/class/infiniband/fake0/ports/1/gid_attrs/ndevs/1", "eth7")
	f.write("sys/class/infiniband_verbs/uverbs0/ibdev", "fake0")
	f.write("dev/infiniband/uverbs0", "")
	return f
}

func (f *fake) write(path, text string) {
	f.t.Helper()
	path = filepath.Join(f.tree, path)
	must(f.t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(f.t, os.WriteFile(path, []byte(text+"\n"), 0o644))
}

// set and get are outside the race detector's sight of C; the tests order
// them with the calls themselves.
func (f *fake) set(knob string, v uint64) {
	binary.NativeEndian.PutUint64(f.ctl[f.at(knob):], v)
}

func (f *fake) get(knob string) uint64 { return binary.NativeEndian.Uint64(f.ctl[f.at(knob):]) }

func (f *fake) at(knob string) int {
	i, ok := knobIndex[knob]
	if !ok {
		f.t.Fatalf("no knob %s", knob)
	}
	return 8 * i
}

// gid writes an entry of the GID table; typ is enum ibv_gid_type.
func (f *fake) gid(index int, addr string, typ, errno uint32) {
	g := verbs.GIDFromAddr(mustAddr(f.t, addr))
	at := f.ctl[gidOffset+32*index:]
	copy(at, g[:])
	binary.NativeEndian.PutUint32(at[16:], typ)
	binary.NativeEndian.PutUint32(at[20:], errno)
	binary.NativeEndian.PutUint32(at[24:], 1)
}

// event makes the library report an asynchronous event.
func (f *fake) event(kind verbs.EventType, element uint32) { f.rawEvent(uint32(kind), element) }

func (f *fake) rawEvent(kind, element uint32) {
	f.t.Helper()
	var b [8]byte
	binary.NativeEndian.PutUint32(b[:], kind)
	binary.NativeEndian.PutUint32(b[4:], element)
	_, err := unix.Write(int(f.get("EVENT_FD")), b[:])
	must(f.t, err)
}

// posted is a WR as libibverbs got it, by offset of struct ibv_send_wr.
type posted struct{ b []byte }

// post returns the i-th WR posted, from 0.
func (f *fake) post(i int) posted {
	f.t.Helper()
	if uint64(i) >= f.get("POSTED") {
		f.t.Fatalf("%d WRs were posted", f.get("POSTED"))
	}
	at := postOffset + i%postCount*postBytes
	return posted{f.ctl[at : at+postBytes]}
}

func (p posted) u64(at int) uint64 { return binary.NativeEndian.Uint64(p.b[at:]) }
func (p posted) u32(at int) uint32 { return binary.NativeEndian.Uint32(p.b[at:]) }

// sge is the i-th of the first four.
func (p posted) sge(i int) verbs.SGE {
	at := 128 + 16*i
	return verbs.SGE{Addr: p.u64(at), Length: p.u32(at + 8), LKey: p.u32(at + 12)}
}

// provider opens the library.
func (f *fake) provider() *Provider {
	f.t.Helper()
	p, err := New(f.cfg)
	must(f.t, err)
	return p
}

// opened are all contexts that the tests of this package opened: TestMain
// fails the run when one has something open.
var opened struct {
	sync.Mutex
	contexts []verbs.Context
	names    []string
}

func open(t testing.TB, p *Provider, name string) verbs.Context {
	t.Helper()
	ctx, err := p.OpenDevice(name)
	must(t, err)
	opened.Lock()
	defer opened.Unlock()
	opened.contexts = append(opened.contexts, ctx)
	opened.names = append(opened.names, t.Name())
	return ctx
}

// open opens fake0, and closes it when the test ends.
func (f *fake) open() *device {
	f.t.Helper()
	ctx := open(f.t, f.provider(), "fake0").(*device)
	f.t.Cleanup(func() {
		f.set("DESTROY_ERRNO", 0)
		if err := ctx.Close(); err != nil && !ctx.closed.Load() {
			f.t.Errorf("close: %v", err)
		}
		if n := len(ctx.cqs); n != 0 {
			f.t.Errorf("the device still knows %d CQs", n)
		}
	})
	return ctx
}

// rig is a QP with what it needs.
type rig struct {
	*fake
	dev *device
	pd  verbs.PD
	cq  verbs.CQ
	qp  verbs.QP
}

func newRig(t testing.TB, typ verbs.QPType) *rig { return newFake(t).rig(typ) }

func (f *fake) rig(typ verbs.QPType) *rig {
	t := f.t
	t.Helper()
	r := &rig{fake: f, dev: f.open()}
	var err error
	r.pd, err = r.dev.AllocPD()
	must(t, err)
	t.Cleanup(func() { f.destroyed("PD", r.pd.Dealloc()) })
	r.cq, err = r.dev.CreateCQ(verbs.CQInitAttr{Entries: 256})
	must(t, err)
	t.Cleanup(func() { f.destroyed("CQ", r.cq.Destroy()) })
	r.qp = r.newQP(typ)
	return r
}

func (r *rig) newQP(typ verbs.QPType) verbs.QP {
	r.t.Helper()
	qp, err := r.pd.CreateQP(verbs.QPInitAttr{Type: typ, SendCQ: r.cq, RecvCQ: r.cq,
		Cap: verbs.QPCap{MaxSendWR: 100, MaxRecvWR: 100, MaxSendSGE: 4, MaxRecvSGE: 4, MaxInlineBytes: 64}})
	must(r.t, err)
	r.t.Cleanup(func() {
		if !qp.(*queuePair).gone.Load() {
			r.destroyed("QP", qp.Destroy())
		}
	})
	return qp
}

func (f *fake) destroyed(what string, err error) {
	if err != nil {
		f.t.Errorf("destroy the %s: %v", what, err)
	}
}

func initAttr() *verbs.QPAttr {
	return &verbs.QPAttr{State: verbs.StateInit, Port: 1, AccessFlags: verbs.AccessRemoteWrite, QKey: 0x11, PKeyIndex: 0}
}

func (r *rig) rtrAttr() *verbs.QPAttr {
	return &verbs.QPAttr{State: verbs.StateRTR, PathMTU: verbs.MTU4096, DestQPN: 0x654321, RQPSN: 0xabcdef, MaxDestRdAtomic: 3,
		MinRNRTimer: 12, AV: verbs.AHAttr{IsGlobal: true, DGID: verbs.GIDFromAddr(mustAddr(r.t, "10.0.0.2")), SGIDIndex: 1, HopLimit: 64, Port: 1}}
}

func rtsAttr() *verbs.QPAttr {
	return &verbs.QPAttr{State: verbs.StateRTS, SQPSN: 0x123456, Timeout: 14, RetryCnt: 6, RNRRetry: 5, MaxRdAtomic: 2}
}

// connect moves a QP to RTS.
func (r *rig) connect(qp verbs.QP) {
	r.t.Helper()
	must(r.t, qp.Modify(initAttr(), verbs.InitMask(qp.Type())))
	must(r.t, qp.Modify(r.rtrAttr(), verbs.RTRMask(qp.Type())))
	must(r.t, qp.Modify(rtsAttr(), verbs.RTSMask(qp.Type())))
}

// pages maps n pages off the Go heap.
func pages(t testing.TB, n int) []byte {
	t.Helper()
	mem, err := unix.Mmap(-1, 0, n*os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	must(t, err)
	t.Cleanup(func() { must(t, unix.Munmap(mem)) })
	return mem
}

func addressOfMem(mem []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(mem)))) }
