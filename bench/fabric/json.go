package fabric

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// testInfo has perftest's keys, then mover's.
type testInfo struct {
	Test           string `json:"test"`
	Device         string `json:"Device"`
	NumberOfQPs    int    `json:"Number_of_qps"`
	TransportType  string `json:"Transport_type"` // IB, as perftest says of every RDMA device; soft
	ConnectionType string `json:"Connection_type"`
	RelaxOrder     string `json:"PCIe_relax_order"`
	TXDepth        int    `json:"TX_depth"`
	CQModeration   int    `json:"CQ_Moderation"`
	MTU            int    `json:"Mtu"`
	LinkType       string `json:"Link_type"`
	GIDIndex       int    `json:"GID_index"`
	MaxInline      int    `json:"Max_inline_data"`

	Provider     string   `json:"provider"`
	RemoteDevice string   `json:"remote_device"`
	Op           string   `json:"op"`
	Pollers      int      `json:"pollers"`
	Unit         string   `json:"bw_unit"` // of BW_peak and BW_average
	InFlight     int      `json:"in_flight"`
	PostList     int      `json:"post_list"`
	LocalMTU     int      `json:"mtu_local"`
	RemoteMTU    int      `json:"mtu_remote"`
	LineGbits    *float64 `json:"line_gbit_per_s"` // null: the port has no real rate
	AckTimeout   *int     `json:"qp_timeout"`      // the exponent; null: nothing is acknowledged
	Verify       bool     `json:"verify"`
}

// bwResult has perftest's keys, then mover's.
type bwResult struct {
	MsgSize     int      `json:"MsgSize"`
	NIterations uint64   `json:"n_iterations"` // of each QP
	BWPeak      *float64 `json:"BW_peak"`      // null: not known, as of several pollers
	BWAverage   float64  `json:"BW_average"`
	MsgRate     float64  `json:"MsgRate"` // million a second
	more
}

// latResult has perftest's keys, then mover's; times in microseconds.
type latResult struct {
	MsgSize     int     `json:"MsgSize"`
	NIterations uint64  `json:"n_iterations"`
	Min         float64 `json:"t_min"`
	Max         float64 `json:"t_max"`
	Typical     float64 `json:"t_typical"`
	Avg         float64 `json:"t_avg"`
	Stdev       float64 `json:"t_stdev"`
	P99         float64 `json:"percentile_99"`
	P999        float64 `json:"percentile_99.9"`
	more
}

// more is what mover adds to every result.
type more struct {
	Pollers       int      `json:"pollers"`
	Messages      uint64   `json:"messages"`
	Seconds       float64  `json:"seconds"`
	GbitPerSecond float64  `json:"gbit_per_s"`
	CPUClient     float64  `json:"cpu_client"` // CPUs
	CPUServer     float64  `json:"cpu_server"`
	Checked       uint64   `json:"checked"`
	Lost          *uint64  `json:"lost"`             // null: not counted
	Ceiling       *float64 `json:"ceiling"`          // share of the line's rate; null: not known
	Share         *float64 `json:"share_of_ceiling"` // null: not known
}

// document is the whole file. Results is one object, as in perftest, when one
// thing was measured; a list of such with All and for rate.
type document struct {
	TestInfo         testInfo `json:"test_info"`
	Results          any      `json:"results"`
	PollersFor200Mpp int      `json:"pollers_for_200_mpps,omitempty"`
}

// WriteJSON writes the report of a client as JSON, with perftest's keys.
func (r *Report) WriteJSON(w io.Writer, gigabits bool) error {
	if len(r.Results) == 0 {
		return fmt.Errorf("writing the report: nothing was measured")
	}
	var results []any
	for _, x := range r.Results {
		results = append(results, r.jsonResult(x, gigabits))
	}
	d := document{TestInfo: r.testInfo(gigabits), Results: results}
	if r.Config.Test == Rate {
		d.PollersFor200Mpp = r.PollersFor(TargetMessagesPerSecond)
	} else if !r.Config.All {
		d.Results = results[0]
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(d)
}

func (r *Report) testInfo(gigabits bool) testInfo {
	c, last := &r.Config, r.Results[len(r.Results)-1]
	i := testInfo{Test: strings.ReplaceAll(r.name(), " ", "_"), Device: r.Device, NumberOfQPs: c.QPs, TransportType: "IB", ConnectionType: c.Transport.String(),
		RelaxOrder: onOff(r.Relaxed), TXDepth: c.Depth, CQModeration: last.Moderation, MTU: r.MTU.Bytes(), LinkType: r.Link.String(), GIDIndex: r.GID.Index,
		MaxInline: last.InlineBytes, Provider: r.Provider, RemoteDevice: r.Remote, Op: string(c.Op), Pollers: c.Pollers,
		Unit: "MiB/sec", InFlight: last.InFlight, PostList: last.Chain, LocalMTU: r.LocalMTU.Bytes(), RemoteMTU: r.RemoteMTU.Bytes(),
		LineGbits: known(float64(r.RateBits) / 1e9), AckTimeout: known(r.AckTimeout), Verify: c.Verify}
	if r.Provider != "ibv" {
		i.TransportType = r.Provider
	}
	if gigabits {
		i.Unit = "Gb/sec"
	}
	return i
}

// known is nil, which JSON calls null, for 0.
func known[T int | float64](v T) *T {
	if v == 0 {
		return nil
	}
	return &v
}

func (r *Report) jsonResult(x Result, gigabits bool) any {
	m := more{Pollers: x.Pollers, Messages: x.Messages, Seconds: x.Elapsed.Seconds(), GbitPerSecond: x.BytesPerSecond * 8 / 1e9,
		CPUClient: x.CPULocal, CPUServer: x.CPURemote, Checked: x.Checked, Ceiling: known(x.Ceiling)}
	if m.Ceiling != nil {
		m.Share = &x.Share
	}
	if x.CountKnown {
		m.Lost = &x.Lost
	}
	iterations := x.Messages / uint64(r.Config.QPs*x.Pollers)
	if f := x.Latency; f != nil {
		return latResult{x.SizeBytes, iterations, f.Min, f.Max, f.Typical, f.Avg, f.Stdev, f.P99, f.P999, m}
	}
	return bwResult{x.SizeBytes, iterations, known(unit(gigabits, x.PeakBytesPerSecond)), unit(gigabits, x.BytesPerSecond), x.MessagesPerSecond / 1e6, m}
}
