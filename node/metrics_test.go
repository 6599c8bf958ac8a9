package node

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"mover/job"
	"mover/node/config"
	"mover/reason"
)

// output collects a node's log.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

// runningNode is a node in this process, on software verbs.
type runningNode struct {
	*Node
	dir string
	log *output
}

// configOf is the configuration of a node in dir that knows peers.
func configOf(t *testing.T, name, dir, peers string) *config.Config {
	t.Helper()
	text := fmt.Sprintf(`
node: {name: %s, state_dir: %q}
control: {dial_timeout: 1s}
devices: {providers: soft}
memory: {arena: 64MiB, session_share: 16MiB, hugepages: none}
session: {slot_payload: 256KiB, segment: 1MiB}
peers: {%s}
roots:
  data: {path: %q, read: ["*"]}
  incoming: {path: %q, write: ["*"]}
`, name, filepath.Join(dir, "state"), peers, filepath.Join(dir, "data"), filepath.Join(dir, "incoming"))
	cfg, err := config.Parse("config.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	// A configuration may not say so: whatever is free.
	cfg.API.Listen, cfg.Control.Listen = "127.0.0.1:0", []string{"127.0.0.1:0"}
	return cfg
}

// runNodes runs nodes that know each other until the test ends. change is
// called before they run.
func runNodes(t *testing.T, change func(*Node), names ...string) []*runningNode {
	t.Helper()
	var nodes []*runningNode
	for _, name := range names {
		n := &runningNode{dir: t.TempDir(), log: &output{}}
		for _, d := range []string{"data", "incoming"} {
			if err := os.Mkdir(filepath.Join(n.dir, d), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		log := slog.New(slog.NewTextHandler(n.log, nil))
		var err error
		if n.Node, err = New(configOf(t, name, n.dir, ""), "v0.0.0-test", log); err != nil {
			t.Fatal(err)
		}
		change(n.Node)
		n.run(t)
		nodes = append(nodes, n)
	}
	// Their addresses are known only now.
	for _, n := range nodes {
		var peers []string
		for _, p := range nodes {
			if p != n {
				peers = append(peers, fmt.Sprintf("%s: {addresses: [%q], fingerprint: %q}", p.cfg.Node.Name, p.control.Addrs()[0], p.identity.Load().Fingerprint))
			}
		}
		if _, err := n.Reload(configOf(t, n.cfg.Node.Name, n.dir, strings.Join(peers, ", "))); err != nil {
			t.Fatal(err)
		}
	}
	return nodes
}

func (n *runningNode) run(t *testing.T) {
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- n.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("node %s: %v", n.cfg.Node.Name, err)
		}
		if t.Failed() {
			t.Logf("log of node %s:\n%s", n.cfg.Node.Name, n.log.b.String())
		}
	})
}

// get is a GET with the admin's token.
func (n *runningNode) get(t *testing.T, path string) string {
	t.Helper()
	token, err := os.ReadFile(n.cfg.TokenFile())
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, n.web.url()+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("GET %s: %d, %v: %s", path, answer.StatusCode, err, text)
	}
	return string(text)
}

// send has a file moved from data to another node's incoming, and returns the
// job when it has ended.
func (n *runningNode) send(t *testing.T, to, name string, content []byte) job.Snapshot {
	t.Helper()
	if err := os.WriteFile(filepath.Join(n.dir, "data", name), content, 0o644); err != nil {
		t.Fatal(err)
	}
	s, _, err := n.queue.Submit(t.Context(), job.Spec{Source: job.Place{Path: "data/" + name}, Destination: job.Place{Node: to, Path: "incoming/" + name}}, "a/test", "")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for !s.State.Terminal() {
		if s, err = n.queue.Wait(ctx, s.ID, s.Version); err != nil {
			t.Fatalf("job %s: %v", s.State, err)
		}
	}
	return s
}

var (
	typeLine = regexp.MustCompile(`(?m)^# TYPE (mover_\w+) (\w+)$`)
	tableRow = regexp.MustCompile("(?m)^\\| `(mover_\\w+)` \\| (\\w+) \\|([^|]*)\\| [^|]+ \\|$")
)

// metricsPage is docs/metrics.md.
func metricsPage(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// documented are the metrics of docs/metrics.md: type and sorted labels by name.
func documented(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, row := range tableRow.FindAllStringSubmatch(metricsPage(t), -1) {
		if _, twice := all[row[1]]; twice {
			t.Errorf("docs/metrics.md has %s twice", row[1])
		}
		labels := strings.Fields(strings.ReplaceAll(row[3], ",", " "))
		slices.Sort(labels)
		all[row[1]] = strings.Join(append([]string{row[2]}, labels...), " ")
	}
	return all
}

var label = regexp.MustCompile(`[{,](\w+)="`)

// described are the metrics of a scrape in the same form.
func described(t *testing.T, text string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, m := range typeLine.FindAllStringSubmatch(text, -1) {
		name := m[1]
		if !regexp.MustCompile(`(?m)^# HELP ` + name + ` \S.*\.$`).MatchString(text) {
			t.Errorf("%s has no HELP that is a sentence", name)
		}
		var labels []string
		series := regexp.MustCompile(`(?m)^` + name + `(_bucket)?(\{.*\})? `).FindString(text)
		for _, l := range label.FindAllStringSubmatch(series, -1) {
			if l[1] != "le" {
				labels = append(labels, l[1])
			}
		}
		slices.Sort(labels)
		all[name] = strings.Join(append([]string{m[2]}, labels...), " ")
	}
	return all
}

// TestMetricsOfARunningNode: a scrape of a node that has moved a file has every
// metric of docs/metrics.md and no other, with the labels given there, a HELP
// line, and a name by Prometheus' rules.
func TestMetricsOfARunningNode(t *testing.T) {
	sys, ports := sysFixture(t)
	nodes := runNodes(t, func(n *Node) { n.hardware.sys, n.hardware.ports = sys, ports[:1] }, "a", "b")
	a := nodes[0]
	if s := a.send(t, "b", "x", make([]byte, 1<<20)); s.State != job.Succeeded {
		t.Fatalf("job %s: %+v", s.State, s.LastReason)
	}
	a.get(t, "/metrics") // the first request is counted after its answer
	text := a.get(t, "/metrics")

	problems, err := promlint.New(strings.NewReader(text)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, "mover_") {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
	if diff := cmp.Diff(documented(t), described(t, text)); diff != "" {
		t.Errorf("docs/metrics.md (-) and a scrape (+) differ:\n%s", diff)
	}
	for _, want := range []string{
		`mover_session_attempts_total{code="OK",peer="b"} 1`, `mover_sessions_made_total{peer="b"} 1`, "mover_sessions 1",
		`mover_rail_lane_errors_total{device="soft0",peer="b",port="1"} 0`, `mover_rail_lanes{device="soft0",peer="b",port="1"} 4`,
		`mover_arena_bytes{numa_node="0"} 6.7108864e+07`, `mover_certificate_expiry_timestamp_seconds{certificate="node"} 2.53402300799e+11`,
		`mover_port_events_total{counter="out_of_sequence",device="mlx5_0",port="1"} 42`, "mover_buffers 0", "mover_queue_age_seconds 0",
	} {
		if !strings.Contains(text, "\n"+want+"\n") {
			t.Errorf("no %s", want)
		}
	}
}

// TestSessionAttempts: why there is no session counts by peer, of those that are
// known; a job that is canceled meanwhile says nothing of the peer.
func TestSessionAttempts(t *testing.T) {
	a := runNodes(t, func(*Node) {}, "a")[0]
	// Nothing listens on port 1.
	peers := fmt.Sprintf("b: {addresses: [%q], fingerprint: %q}", "127.0.0.1:1", a.identity.Load().Fingerprint)
	if _, err := a.Reload(configOf(t, "a", a.dir, peers)); err != nil {
		t.Fatal(err)
	}
	canceled, cancel := context.WithCancelCause(t.Context())
	cancel(reason.New(reason.Canceled, "as asked"))
	for _, c := range []struct {
		ctx  context.Context
		peer string
	}{{t.Context(), "b"}, {t.Context(), "b"}, {canceled, "b"}, {t.Context(), "made-up"}} {
		if _, err := a.sessions.to(c.ctx, c.peer); err == nil {
			t.Fatalf("a session with %s", c.peer)
		}
	}
	want := map[string]float64{
		"session_attempts_total{code=PEER_UNREACHABLE,peer=b}": 2, "session_attempts_total{code=CANCELED,peer=b}": 1,
		"session_attempts_total{code=PEER_UNREACHABLE,peer=other}": 1,
	}
	if diff := cmp.Diff(want, flat(t, a.sessions.attempts)); diff != "" {
		t.Error(diff)
	}
}

// TestRailCountersOutliveSessions: what was sent to a peer is counted on when
// its session has ended.
func TestRailCountersOutliveSessions(t *testing.T) {
	nodes := runNodes(t, func(*Node) {}, "a", "b")
	a := nodes[0]
	key := railKey{"b", "soft0", "1"}
	for i := range uint64(2) {
		if s := a.send(t, "b", fmt.Sprint("x", i), make([]byte, 1<<20)); s.State != job.Succeeded {
			t.Fatalf("job %s: %+v", s.State, s.LastReason)
		}
		for _, s := range a.sessions.all() {
			s.link.Close("the test ends it")
			<-s.link.Done()
		}
		for len(a.sessions.all()) > 0 {
			time.Sleep(time.Millisecond) // it is forgotten just after
		}
		totals, infos := a.sessions.rails()
		if got := totals[key]; got.sent < (i+1)<<20 || got.errors != 0 || got.live || len(infos) != 0 {
			t.Errorf("after session %d: %+v, %v", i, got, slices.Collect(maps.Keys(infos)))
		}
	}
}

// TestMetricsPage: the page names every counter of ports that becomes a metric
// and no other, and its alerts are about metrics that there are.
func TestMetricsPage(t *testing.T) {
	page := metricsPage(t)
	_, ports, _ := strings.Cut(page, "\n| what happened | `counter` |\n")
	ports, _, _ = strings.Cut(ports, "\n\n")
	named := map[string]bool{"port_xmit_data": true, "port_rcv_data": true} // metrics of their own
	for _, m := range regexp.MustCompile("`(\\w+)`").FindAllStringSubmatch(ports, -1) {
		named[m[1]] = true
	}
	if diff := cmp.Diff(portCounters, named); diff != "" {
		t.Errorf("counters of ports (-) and those that docs/metrics.md names (+) differ:\n%s", diff)
	}
	_, alerts, _ := strings.Cut(page, "\n## Alerts")
	known := documented(t)
	used := regexp.MustCompile(`mover_\w+`).FindAllString(alerts, -1)
	if len(used) < 5 {
		t.Fatalf("the alerts use %v", used)
	}
	for _, name := range used {
		if known[name] == "" {
			t.Errorf("an alert is about %s, which is no metric", name)
		}
	}
	_, alerts, _ = strings.Cut(alerts, `counter=~"`)
	alerts, _, _ = strings.Cut(alerts, `"`)
	for _, name := range strings.Split(alerts, "|") {
		if !portCounters[name] {
			t.Errorf("an alert is about the counter %q, which is no metric", name)
		}
	}
}
