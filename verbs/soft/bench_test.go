//go:build linux

package soft

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"mover/verbs"
)

// The two-process benchmark: the test binary starts itself twice, as a
// receiver and a sender, which exchange what a control plane would over their
// standard streams.
const benchRoleEnv = "SOFT_BENCH_ROLE"

type benchShape struct {
	Addrs   []string
	QPs     int // of each address
	Window  int // writes outstanding over all QPs
	Bytes   int
	Seconds float64
	Cfg     Config
}

type benchQP struct {
	GID  verbs.GID
	QPN  uint32
	Data []byte
	Addr uint64
	RKey uint32
}

type benchEnd struct {
	cqs  []verbs.CQ
	qps  []verbs.QP
	mrs  []verbs.MR
	mem  []byte
	tell []benchQP
}

func openBench(s benchShape) (*benchEnd, error) {
	for _, a := range s.Addrs {
		s.Cfg.Addresses = append(s.Cfg.Addresses, netip.MustParseAddr(a))
	}
	p, err := New(s.Cfg)
	if err != nil {
		return nil, err
	}
	e := &benchEnd{}
	// As an arena: every outstanding write has its own slot, on huge pages if
	// there are any.
	e.mem, err = unix.Mmap(-1, 0, s.Window*s.Bytes+2<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, err
	}
	e.mem = e.mem[-addressOf(e.mem)&(2<<20-1):][:s.Window*s.Bytes]
	unix.Madvise(e.mem, unix.MADV_HUGEPAGE)
	for i := 0; i < len(e.mem); i += 4096 {
		e.mem[i] = 1
	}
	for i := range s.Addrs {
		ctx, err := p.OpenDevice("soft" + strconv.Itoa(i))
		if err != nil {
			return nil, err
		}
		pd, err := ctx.AllocPD()
		if err != nil {
			return nil, err
		}
		mr, err := pd.RegMR(e.mem, verbs.AccessLocalWrite|verbs.AccessRemoteWrite)
		if err != nil {
			return nil, err
		}
		cq, err := ctx.CreateCQ(verbs.CQInitAttr{Entries: 4096})
		if err != nil {
			return nil, err
		}
		e.cqs = append(e.cqs, cq)
		for range s.QPs {
			qp, err := pd.CreateQP(verbs.QPInitAttr{Type: verbs.RC, SendCQ: cq, RecvCQ: cq,
				Cap: verbs.QPCap{MaxSendWR: 64, MaxRecvWR: 64, MaxSendSGE: 1, MaxRecvSGE: 1}})
			if err != nil {
				return nil, err
			}
			e.qps = append(e.qps, qp)
			e.mrs = append(e.mrs, mr)
			e.tell = append(e.tell, benchQP{GID: gidOf(ctx), QPN: qp.QPN(), Data: qp.ConnData(), Addr: mr.Addr(), RKey: mr.RKey()})
		}
	}
	return e, nil
}

func (e *benchEnd) connect(peers []benchQP) error {
	for i, qp := range e.qps {
		if err := toInit(qp, usual); err != nil {
			return err
		}
		if err := qp.Modify(&verbs.QPAttr{State: verbs.StateRTR, PathMTU: verbs.MTU4096, DestQPN: peers[i].QPN,
			MinRNRTimer: 12, AV: verbs.AHAttr{IsGlobal: true, DGID: peers[i].GID}, RemoteConnData: peers[i].Data},
			verbs.RTRMask(verbs.RC)); err != nil {
			return err
		}
		if err := toRTS(qp, usual); err != nil {
			return err
		}
	}
	return nil
}

// sendFor keeps window writes outstanding and returns the bytes completed.
func (e *benchEnd) sendFor(s benchShape, peers []benchQP, d time.Duration) (uint64, time.Duration, error) {
	var wcs [64]verbs.WC
	wr := make([]verbs.SendWR, 1)
	sge := make([]verbs.SGE, 1)
	seq, out, done := 0, 0, uint64(0)
	room := make(map[uint32]*int)
	inflight := make([]int, len(e.qps))
	for i, qp := range e.qps {
		room[qp.QPN()] = &inflight[i]
	}
	perQP := (s.Window + len(e.qps) - 1) / len(e.qps)
	var start time.Time
	for next := 0; ; {
		for out < s.Window {
			i := next
			for k := 0; inflight[i] >= perQP && k < len(e.qps); k++ {
				i = (i + 1) % len(e.qps)
			}
			next = (i + 1) % len(e.qps)
			slot := uint64(seq % s.Window * s.Bytes)
			sge[0] = verbs.SGE{Addr: e.mrs[i].Addr() + slot, Length: uint32(s.Bytes), LKey: e.mrs[i].LKey()}
			wr[0] = verbs.SendWR{Op: verbs.OpWrite, Flags: verbs.SendSignaled, SGL: sge, RemoteAddr: peers[i].Addr + slot, RKey: peers[i].RKey}
			if _, err := e.qps[i].PostSend(wr); err != nil {
				return 0, 0, err
			}
			inflight[i]++
			seq++
			out++
		}
		for _, cq := range e.cqs {
			n, err := cq.Poll(wcs[:])
			if err != nil {
				return 0, 0, err
			}
			for _, wc := range wcs[:n] {
				if wc.Status != verbs.WCSuccess {
					return 0, 0, fmt.Errorf("completion %v", wc.Status)
				}
				*room[wc.QPN]--
				out--
				if start.IsZero() {
					if done++; done >= uint64(2*s.Window) { // warm
						start, done = time.Now(), 0
					}
					continue
				}
				done += uint64(s.Bytes)
			}
		}
		if !start.IsZero() {
			if el := time.Since(start); el > d {
				return done, el, nil
			}
		}
	}
}

func benchProcess() int {
	runtime.LockOSThread()
	var s benchShape
	if err := json.Unmarshal([]byte(os.Getenv("SOFT_BENCH_SHAPE")), &s); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	e, err := openBench(s)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	json.NewEncoder(os.Stdout).Encode(e.tell)
	in := json.NewDecoder(bufio.NewReader(os.Stdin))
	var peers []benchQP
	if err := in.Decode(&peers); err != nil {
		return 1
	}
	if err := e.connect(peers); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if os.Getenv(benchRoleEnv) == "send" {
		n, el, err := e.sendFor(s, peers, time.Duration(s.Seconds*float64(time.Second)))
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		fmt.Println(float64(n) * 8 / el.Seconds() / 1e9)
		return 0
	}
	var wcs [64]verbs.WC
	for gone := 0; gone < len(e.qps); { // until the sender exits
		for _, cq := range e.cqs {
			if _, err := cq.Poll(wcs[:]); err != nil {
				return 1
			}
		}
		gone = 0
		for _, qp := range e.qps {
			if a, _ := qp.Query(); a.State == verbs.StateErr {
				gone++
			}
		}
	}
	return 0
}

// twoProcesses measures one shape in Gbit/s.
func twoProcesses(b testing.TB, s benchShape) float64 {
	b.Helper()
	shape, err := json.Marshal(s)
	if err != nil {
		b.Fatal(err)
	}
	type proc struct {
		cmd *exec.Cmd
		in  *json.Encoder
		out *bufio.Reader
	}
	start := func(role string) proc {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), benchRoleEnv+"="+role, "SOFT_BENCH_SHAPE="+string(shape))
		cmd.Stderr = os.Stderr
		in, err1 := cmd.StdinPipe()
		out, err2 := cmd.StdoutPipe()
		if err1 != nil || err2 != nil {
			b.Fatal(err1, err2)
		}
		if err := cmd.Start(); err != nil {
			b.Fatal(err)
		}
		return proc{cmd, json.NewEncoder(in), bufio.NewReader(out)}
	}
	rx, tx := start("receive"), start("send")
	defer func() {
		rx.cmd.Process.Kill()
		tx.cmd.Process.Kill()
		rx.cmd.Wait()
		tx.cmd.Wait()
	}()
	swap := func(from, to proc) {
		line, err := from.out.ReadBytes('\n')
		if err != nil {
			b.Fatal(err)
		}
		if err := to.in.Encode(json.RawMessage(line)); err != nil {
			b.Fatal(err)
		}
	}
	swap(tx, rx)
	swap(rx, tx)
	line, err := tx.out.ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	v, err := strconv.ParseFloat(strings.TrimSpace(line), 64)
	if err != nil {
		b.Fatal(err)
	}
	return v
}

// iperf3 runs one client against an own server, in Gbit/s at the receiver.
func iperf3(b testing.TB, seconds float64, streams int, block string) float64 {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	port := strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	l.Close()
	srv := exec.Command("iperf3", "-s", "-1", "-B", "127.0.0.1", "-p", port)
	if err := srv.Start(); err != nil {
		b.Fatal(err)
	}
	defer srv.Wait()
	defer srv.Process.Kill()
	var out []byte
	for range 50 {
		out, err = exec.Command("iperf3", "-c", "127.0.0.1", "-p", port, "-t", fmt.Sprintf("%.0f", seconds), "-J",
			"-P", strconv.Itoa(streams), "-l", block).Output()
		if err == nil {
			break
		}
		time.Sleep(20 * time.Millisecond) // the server is not listening yet
	}
	var r struct {
		End struct {
			Sum struct {
				Rate float64 `json:"bits_per_second"`
			} `json:"sum_received"`
		} `json:"end"`
	}
	if err == nil {
		err = json.Unmarshal(out, &r)
	}
	if err != nil {
		b.Fatal("iperf3: ", err)
	}
	return r.End.Sum.Rate / 1e9
}

var benchShapes = []struct {
	name  string
	shape benchShape
}{
	{"2dev-4qp", benchShape{Addrs: []string{"127.0.0.1", "127.0.0.2"}, QPs: 4, Window: 32, Bytes: 1 << 20}},
	{"1dev-1qp", benchShape{Addrs: []string{"127.0.0.1"}, QPs: 1, Window: 32, Bytes: 1 << 20}},
}

// BenchmarkProcesses is one run of a second for each shape.
func BenchmarkProcesses(b *testing.B) {
	for _, s := range benchShapes {
		if c := os.Getenv("SOFT_BENCH_CFG"); c != "" {
			if err := json.Unmarshal([]byte(c), &s.shape.Cfg); err != nil {
				b.Fatal(err)
			}
		}
		b.Run(s.name, func(b *testing.B) {
			s.shape.Seconds = 1
			sum := 0.0
			for range b.N {
				sum += twoProcesses(b, s.shape)
			}
			b.ReportMetric(sum/float64(b.N), "Gbit/s")
		})
	}
}

// BenchmarkAgainstIperf3 alternates with iperf3's best of 1 and 2 streams with
// 128 KiB and 1 MiB blocks. Run it with -benchtime=1x.
func BenchmarkAgainstIperf3(b *testing.B) {
	if _, err := exec.LookPath("iperf3"); err != nil {
		b.Skip("iperf3 is not installed: apt-get install iperf3")
	}
	for range b.N {
		ours := map[string]float64{}
		best := 0.0
		for _, streams := range []int{1, 2} {
			for _, block := range []string{"128K", "1M"} {
				v := iperf3(b, 1, streams, block)
				b.Logf("iperf3 %d x %s: %.1f Gbit/s", streams, block, v)
				best = max(best, v)
				for _, s := range benchShapes {
					s.shape.Seconds = 1
					g := twoProcesses(b, s.shape)
					b.Logf("soft %s: %.1f Gbit/s", s.name, g)
					ours[s.name] = max(ours[s.name], g)
				}
			}
		}
		for name, v := range ours {
			b.ReportMetric(v/best, "x-iperf3-"+name)
			b.ReportMetric(v, "Gbit/s-"+name)
		}
		b.ReportMetric(best, "Gbit/s-iperf3")
	}
}

// BenchmarkThreads moves 1 MiB writes between two pollers in one process, each
// on its own thread.
func BenchmarkThreads(b *testing.B) {
	o := sideOptions{memBytes: 32 << 20, cap: verbs.QPCap{MaxSendWR: 32, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}}
	tx, rx := pair(b, o, o, usual)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		runtime.LockOSThread() // never unlocked: the thread goes with the goroutine
		var wcs [8]verbs.WC
		for {
			select {
			case <-stop:
				return
			default:
			}
			if _, err := rx.cq.Poll(wcs[:]); err != nil {
				b.Error(err)
				return
			}
		}
	})
	var wcs [32]verbs.WC
	wr := []verbs.SendWR{tx.write(1, rx, 0, 1<<20)}
	b.SetBytes(1 << 20)
	b.ReportAllocs()
	b.ResetTimer()
	for posted, done := 0, 0; done < b.N; {
		for posted < b.N && posted-done < 32 {
			off := uint64(posted%32) << 20
			wr[0].SGL[0].Addr, wr[0].RemoteAddr = tx.mr.Addr()+off, rx.mr.Addr()+off
			if _, err := tx.qp.PostSend(wr); err != nil {
				b.Fatal(err)
			}
			posted++
		}
		n, err := tx.cq.Poll(wcs[:])
		if err != nil {
			b.Fatal(err)
		}
		for _, wc := range wcs[:n] {
			if wc.Status != verbs.WCSuccess {
				b.Fatalf("%+v", wc)
			}
		}
		done += n
	}
	b.StopTimer()
	close(stop)
	wg.Wait()
}

// BenchmarkIdlePoll is a Poll of a CQ with ten connected QPs that have nothing
// to do.
func BenchmarkIdlePoll(b *testing.B) {
	o := sideOptions{entries: 1024}
	tx, rx := pair(b, o, o, usual)
	for range 9 {
		var qps [2]verbs.QP
		for i, s := range []*side{tx, rx} {
			qps[i] = must[verbs.QP](b)(s.pd.CreateQP(verbs.QPInitAttr{Type: verbs.RC, SendCQ: s.cq, RecvCQ: s.cq,
				Cap: verbs.QPCap{MaxSendWR: 4, MaxRecvWR: 4, MaxSendSGE: 1, MaxRecvSGE: 1}}))
			defer qps[i].Destroy()
		}
		join(b, qps[0], qps[1], usual)
	}
	drive(b, "connections", func() bool {
		for _, qp := range tx.cq.(*cq).qps {
			if qp.fd < 0 || !qp.t.(*queuePair).sq.heard {
				return false
			}
		}
		return len(tx.cq.(*cq).qps) == 10
	}, tx, rx)
	var wcs [16]verbs.WC
	b.ReportAllocs()
	for b.Loop() {
		if _, err := tx.cq.Poll(wcs[:]); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkSmallWrite is a write of 64 bytes and its completion, both ends
// polled by one thread.
func BenchmarkSmallWrite(b *testing.B) {
	tx, rx := pair(b, sideOptions{}, sideOptions{}, usual)
	wr := []verbs.SendWR{tx.write(1, rx, 0, 64)}
	var wcs [4]verbs.WC
	b.ReportAllocs()
	for b.Loop() {
		if _, err := tx.qp.PostSend(wr); err != nil {
			b.Fatal(err)
		}
		for n := 0; n == 0; {
			var err error
			if n, err = tx.cq.Poll(wcs[:]); err != nil {
				b.Fatal(err)
			}
			if _, err := rx.cq.Poll(wcs[1:]); err != nil {
				b.Fatal(err)
			}
		}
	}
}
