package fabric

import (
	"fmt"
	"io"
	"strings"
)

// ruler is perftest's.
const ruler = "---------------------------------------------------------------------------------------\n"

// Table prints a report as text, with perftest's columns and then mover's.
type Table struct {
	W        io.Writer
	Gigabits bool // Gb/sec, decimal, instead of MB/sec, which is MiB/s in perftest
}

// name is the test as perftest names it.
func (r *Report) name() string {
	verb := map[Op]string{Write: "RDMA_Write", Send: "Send"}[r.Config.Op]
	return verb + " " + map[Test]string{Bandwidth: "BW", Latency: "Latency", Rate: "Rate"}[r.Config.Test] + " Test"
}

// Begin prints what the two sides agreed on, and the columns' names.
func (t Table) Begin(r *Report) {
	c := &r.Config
	fmt.Fprint(t.W, ruler)
	fmt.Fprintf(t.W, "                    %s\n", r.name())
	fmt.Fprintf(t.W, " Provider        : %s\t\tDevice         : %s (there: %s)\n", r.Provider, r.Device, r.Remote)
	fmt.Fprintf(t.W, " Number of qps   : %d\t\tConnection type : %v\n", c.QPs, c.Transport)
	fmt.Fprintf(t.W, " TX depth        : %d, in at most %d bytes a QP\n", c.Depth, c.RingBytes)
	if r.AckTimeout > 0 {
		fmt.Fprintf(t.W, " ACK timeout     : %d (%.3g ms)\n", r.AckTimeout, float64(ackTime(r.AckTimeout))/1e6)
	}
	mtu := ""
	if r.LocalMTU != r.RemoteMTU {
		mtu = fmt.Sprintf(" (warning: here %v, there %v)", r.LocalMTU, r.RemoteMTU)
	}
	fmt.Fprintf(t.W, " Mtu             : %v[B]%s\n", r.MTU, mtu)
	fmt.Fprintf(t.W, " Link type       : %v, GID %d: %v %v\n", r.Link, r.GID.Index, r.GID.Type, r.GID.GID.Addr())
	rate := "n/a: the port has no rate of its own"
	if r.RateBits > 0 {
		rate = fmt.Sprintf("%.1f Gb/sec", float64(r.RateBits)/1e9)
	}
	fmt.Fprintf(t.W, " Line rate       : %s\n", rate)
	cpus := "not pinned"
	if len(r.CPUs) > 0 {
		cpus = strings.Trim(fmt.Sprint(r.CPUs), "[]")
	}
	fmt.Fprintf(t.W, " Poller CPUs     : %s\n", cpus)
	fmt.Fprintf(t.W, " PCIe relax order: %s\t\tPattern check  : %s\n", onOff(r.Relaxed), onOff(c.Verify))
	fmt.Fprint(t.W, ruler)
	if r.Client {
		fmt.Fprintln(t.W, t.columns(r))
	}
}

func onOff(b bool) string {
	if b {
		return "ON"
	}
	return "OFF"
}

func (t Table) columns(r *Report) string {
	const cpus = "   CPU client/server[CPU-s/s]"
	const ours = "   most payload[% of line]   reached[% of that]" + cpus
	switch {
	case r.Config.Test == Latency:
		return " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec]" + cpus
	case r.Config.Test == Rate:
		return " #pollers   #bytes     #iterations    MsgRate[Mpps]   Mpps per poller" + ours
	case t.Gigabits:
		return " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]" + ours
	}
	return " #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]" + ours
}

// unit converts bytes per second.
func unit(gigabits bool, bytesPerSecond float64) float64 {
	if gigabits {
		return bytesPerSecond * 8 / 1e9
	}
	return bytesPerSecond / (1 << 20)
}

// Line prints one result.
func (t Table) Line(r *Report, x Result) {
	iterations := x.Messages / uint64(r.Config.QPs*x.Pollers)
	ceiling, share := "n/a", "n/a"
	if x.Ceiling > 0 {
		ceiling, share = fmt.Sprintf("%.2f", x.Ceiling*100), fmt.Sprintf("%.1f", x.Share*100)
	}
	cpu := fmt.Sprintf("%.2f/%.2f", x.CPULocal, x.CPURemote)
	switch {
	case !r.Client:
		fmt.Fprintf(t.W, " %d bytes: %d messages sent, ", x.SizeBytes, x.Messages)
		if x.CountKnown {
			fmt.Fprintf(t.W, "%d arrived, ", x.Arrived)
		}
		fmt.Fprintf(t.W, "%d checks of content passed; CPU %.2f CPU-s/s\n", x.Checked, x.CPULocal)
		return
	case r.Config.Test == Latency:
		f := x.Latency
		fmt.Fprintf(t.W, " %-7d %-10d     %-7.2f        %-7.2f      %-7.2f            %-7.2f        %-7.2f         %-7.2f                %-7.2f                  %s\n",
			x.SizeBytes, iterations, f.Min, f.Max, f.Typical, f.Avg, f.Stdev, f.P99, f.P999, cpu)
	case r.Config.Test == Rate:
		fmt.Fprintf(t.W, " %-10d %-10d %-10d     %-13.6f   %-13.6f     %-23s   %-18s   %s\n", x.Pollers, x.SizeBytes, iterations,
			x.MessagesPerSecond/1e6, x.MessagesPerSecond/1e6/float64(x.Pollers), ceiling, share, cpu)
	default:
		fmt.Fprintf(t.W, " %-7d    %-10d       %-7.2f            %-7.2f              %-7.6f        %-23s   %-18s   %s\n", x.SizeBytes, iterations,
			unit(t.Gigabits, x.PeakBytesPerSecond), unit(t.Gigabits, x.BytesPerSecond), x.MessagesPerSecond/1e6, ceiling, share, cpu)
	}
	if x.Lost > 0 {
		fmt.Fprintf(t.W, " lost: %d of %d messages (%.2f %%); %v does not repeat them, and the figures count what was sent\n", x.Lost, x.Messages,
			100*float64(x.Lost)/float64(x.Messages), r.Config.Transport)
	}
}

// End prints what follows from all lines.
func (t Table) End(r *Report) {
	if r.Client && r.Config.Test == Rate && len(r.Results) > 0 {
		last := r.Results[len(r.Results)-1]
		fmt.Fprintf(t.W, " %.0f million messages a second would need %d pollers, if each made the %.3f Mpps that each of %d made (growth in\n"+
			" proportion is an assumption: the adapter, the line and shared caches end it somewhere)\n", TargetMessagesPerSecond/1e6,
			r.PollersFor(TargetMessagesPerSecond), last.MessagesPerSecond/1e6/float64(last.Pollers), last.Pollers)
	}
	fmt.Fprint(t.W, ruler)
}
