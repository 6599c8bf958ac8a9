package engine

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
)

// A planted fault is a rule of the engine, broken on purpose in a copy of its
// source. The simulation has to find it.
type planted struct {
	name  string // as in docs/simulation.md
	edits []edit
	// pkg and run are another test that has to find it, where the simulation has
	// nothing of the kind; empty otherwise.
	pkg, run string
}

// ciSeeds is how many scripts/test.sh runs: who is not found by those is not
// found.
const ciSeeds = "3000"

// edit replaces text that a file has just once.
type edit struct{ file, old, new string }

var plantedFaults = []planted{
	{name: "a receive slot is granted again before it is stored", edits: []edit{
		{"receive.go", "	g.submit(&s.op)\n", "	g.submit(&s.op)\n	s.generation++\n	s.state = recvGranted\n	g.owe(index)\n"},
		{"receive.go", "	s.generation++\n	s.state, s.answered, s.creditedOn = recvGranted, false, nil\n	g.owe(op.index)\n", "	s.answered, s.creditedOn = false, nil\n"}}},
	{name: "a send slot is used again at the credit, its write not completed", edits: []edit{
		{"send.go", "if s.done && s.credited {", "if s.credited {"}}},
	{name: "a send slot is used again at the completion, without the credit", edits: []edit{
		{"send.go", "if s.done && s.credited {", "if s.done {"}}},
	{name: "a segment's first chunk says done for all", edits: []edit{
		{"segment.go", "if at+n == len(s.memory) {", "if at == 0 {"}}},
	{name: "the status of a completion is not looked at", edits: []edit{
		{"group.go", "case wc.Status != verbs.WCSuccess:", "case wc.Status == verbs.WCLocLenErr:"}}},
	{name: "credits are sent without room in the queue", edits: []edit{
		{"receive.go", "l.state == laneUp && l.room() > 0", "l.state == laneUp"}}},
	{name: "more writes are sent than the peer has receives for", edits: []edit{
		{"send.go", "l.window+wrs > l.depth || ", ""}}},
	{name: "receives are posted after the peer was told that it may send", edits: []edit{
		{"connect.go", "wrs := make([]verbs.RecvWR, l.recvCap)", "wrs := make([]verbs.RecvWR, 1)"},
		{"failure.go", "	l.state = laneUp\n	if !l.credit {", "	l.state = laneUp\n	late := make([]verbs.RecvWR, l.recvCap-l.recvs)\n	for i := range late {\n		late[i].WRID = wrID(wrRecv, l, 0)\n	}\n	n, _ := l.qp.PostRecv(late)\n	l.recvs += n\n	if !l.credit {"}}},
	{name: "a credit of another generation is taken", edits: []edit{
		{"send.go", "r.local < 0 || !sameGeneration(generation, r.generation+1)", "r.local < 0"}}},
	{name: "a lane is called drained before its work requests have completed", edits: []edit{
		{"failure.go", "l.state != laneDraining || l.sends > 0 || l.recvs > 0 || l.connection.out", "l.state != laneDraining || l.connection.out"}}},
	{name: "the checksum of a record is not compared", edits: []edit{
		{"inbox.go", "crc != r.CRC", "crc != r.CRC && i.closed.Load()"}}},
	{name: "no checksum of a segment is compared, nor the whole's", edits: []edit{
		{"granting.go", "!seg.verify || seg.sum == seg.ackCRC", "true"},
		{"receiving.go", "i.offer.Verify && crc != m.CRC", "i.offer.Verify && crc != m.CRC && i.target == nil"}}},
	{name: "a chunk that arrived is sent again and counted twice", edits: []edit{
		{"failure.go", "if s.state == recvGranted && sameGeneration(ref.Generation, s.generation) {", "if sameGeneration(ref.Generation, s.generation) {\n			s.state = recvGranted"}}},
	{name: "a segment that arrived is sent again", edits: []edit{
		{"failure.go", "if e.granted && e.generation == ref.Generation {", "if e.generation == ref.Generation {\n			e.granted = true"}}},
	{name: "memory goes to its owner while the peer has its key", edits: []edit{
		{"receiving.go", "	s.deregister(i.mrs)\n	i.mrs = nil\n	s.cfg.Receiver.Publish", "	s.cfg.Receiver.Publish"}}},
	{name: "the source is told done before the item is published", edits: []edit{
		{"receiving.go", "	s.cfg.Receiver.Publish(", "	s.send(&ItemDone{Ref: i.ref})\n	s.cfg.Receiver.Publish("}}},
	{name: "the epoch of a completion is not looked at", edits: []edit{
		{"group.go", "if l.gone || epoch != uint8(l.epoch) {", "if epoch == uint8(l.epoch)+128 {"}}},
	{name: "an item ends while chunks of it are out", edits: []edit{
		{"sending.go", "if i.outstanding == 0 && i.aux == 0 {", "if i.aux == 0 {"}}},
	{name: "an item ends while its source is asked whether it changed", edits: []edit{
		{"sending.go", "if i.outstanding == 0 && i.aux == 0 {", "if i.outstanding == 0 {"}}},
	{name: "memory is let go before the queue pairs are gone", edits: []edit{
		{"ending.go", "return s.phase < phaseClosing || s.unwired", "return true"}}},
	{name: "credits that were lost with their lane are not repeated", edits: []edit{
		{"failure.go", "	if l.credit {\n		g.creditsLost(l)\n	}\n", ""}}},
	{name: "work requests that a post did not take are forgotten", edits: []edit{
		{"send.go", "	g.unposted(l.sendWRs[posted:n])\n", ""}}},
	{name: "a dead completion queue is waited for", edits: []edit{
		{"group.go", "now-l.quietSince > g.patience(l)", "now-l.quietSince > 1000*g.patience(l)"},
		{"group.go", "min(at, l.quietSince+g.patience(l)+1)", "min(at, l.quietSince+1000*g.patience(l)+1)"}}},
	{name: "the grants of an item that ended are not taken back", edits: []edit{
		{"receiving.go", "			g.freeSegs = append(g.freeSegs, nextGeneration(h.seg))\n		}\n		i.granted = nil", "			_ = g\n		}\n		i.granted = nil"}}},
	{name: "a worker returns an op and does not wake the poller", edits: []edit{
		{"poller.go", "		panic(\"engine: more ops returned than were reserved\")\n	}\n	p.waker.Wake()\n", "		panic(\"engine: more ops returned than were reserved\")\n	}\n"}}},
	{name: "a consumer sleeps without a second look (lost wake-up)", pkg: "../ring", run: "^TestModelParkingLosesNoWakeUp$", edits: []edit{
		{"../ring/model_test.go", "		if m.noRepoll {", "		if !m.noRepoll {"}}},
}

// TestPlantedFaults proves that the simulation bites. It builds the test once a
// fault, which takes minutes: a step of its own in scripts/test.sh asks for it.
func TestPlantedFaults(t *testing.T) {
	if os.Getenv("MOVER_SIM_PLANTED") == "" {
		t.Skip("builds the tests of this package once a fault: MOVER_SIM_PLANTED=1 has it run")
	}
	only := regexp.MustCompile(os.Getenv("MOVER_SIM_PLANTED_ONLY"))
	var wg sync.WaitGroup
	two := make(chan struct{}, 2)
	for _, p := range plantedFaults {
		if !only.MatchString(p.name) {
			continue
		}
		wg.Go(func() {
			two <- struct{}{}
			defer func() { <-two }()
			found, err := p.try(t.TempDir())
			if err != nil {
				t.Errorf("%s: %v", p.name, err)
				return
			}
			t.Logf("%s\n    found: %s", p.name, found)
		})
	}
	wg.Wait()
}

// TestPlantedFaultsAreTold: docs/simulation.md lists just these faults, and
// scripts/test.sh runs just so many seeds.
func TestPlantedFaultsAreTold(t *testing.T) {
	read := func(path string) string {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	_, table, ok := strings.Cut(read("../docs/simulation.md"), "| planted fault |")
	if !ok {
		t.Fatal("docs/simulation.md has no table of them")
	}
	for _, p := range plantedFaults {
		if !strings.Contains(table, "| "+p.name+" |") {
			t.Errorf("docs/simulation.md lacks: %s", p.name)
		}
	}
	if n := strings.Count(table, "\n| "); n != len(plantedFaults) {
		t.Errorf("docs/simulation.md has %d rows for %d faults", n, len(plantedFaults))
	}
	if !strings.Contains(read("../scripts/test.sh"), "MOVER_SIM_SEEDS="+ciSeeds+" ") {
		t.Errorf("scripts/test.sh does not run %s seeds", ciSeeds)
	}
	for _, p := range plantedFaults {
		if _, err := p.plant(t.TempDir()); err != nil {
			t.Errorf("%s: %v", p.name, err)
		}
	}
}

var verdictLine = regexp.MustCompile(`seed (\d+), [^\n]*\n\s*\[(\w+)\] ([^\n]*)`)

// try plants the fault in a copy and runs what has to find it; it says who found
// it.
func (p *planted) try(dir string) (string, error) {
	overlay, err := p.plant(dir)
	if err != nil {
		return "", err
	}
	pkg, run := ".", "^TestSimulation$"
	if p.pkg != "" {
		pkg, run = p.pkg, p.run
	}
	bin := filepath.Join(dir, "test")
	if out, err := exec.Command("go", "test", "-c", "-buildvcs=false", "-overlay", overlay, "-o", bin, pkg).CombinedOutput(); err != nil {
		return "", plantError("it does not build: " + string(out))
	}
	c := exec.Command(bin, "-test.run", run, "-test.timeout", "5m")
	c.Dir = pkg
	c.Env = append(os.Environ(), "MOVER_SIM_FIRST=1", "MOVER_SIM_SEED=", "MOVER_SIM_SEEDS="+ciSeeds)
	out, err := c.CombinedOutput()
	if err == nil {
		return "", plantError("NOT FOUND")
	}
	if m := verdictLine.FindSubmatch(out); m != nil {
		return "by seed " + string(m[1]) + ", invariant " + string(m[2]) + ": " + string(m[3]), nil
	}
	if p.pkg != "" && strings.Contains(string(out), "--- FAIL") {
		return "by " + run + " of " + filepath.Base(pkg), nil
	}
	return "", plantError("the run ended without a verdict: " + string(out))
}

type plantError string

func (e plantError) Error() string {
	if len(e) > 4000 {
		e = e[:4000]
	}
	return string(e)
}

// plant writes the changed files and the overlay that names them.
func (p *planted) plant(dir string) (overlay string, err error) {
	content := map[string]string{}
	for _, e := range p.edits {
		path, err := filepath.Abs(e.file)
		if err != nil {
			return "", err
		}
		text, ok := content[path]
		if !ok {
			b, err := os.ReadFile(path)
			if err != nil {
				return "", err
			}
			text = string(b)
		}
		if n := strings.Count(text, e.old); n != 1 {
			return "", plantError(e.file + " has not once, but in " + string(rune('0'+min(n, 9))) + " places: " + e.old)
		}
		content[path] = strings.Replace(text, e.old, e.new, 1)
	}
	replace := map[string]string{}
	for path, text := range content {
		to := filepath.Join(dir, filepath.Base(path))
		if err := os.WriteFile(to, []byte(text), 0o600); err != nil {
			return "", err
		}
		replace[path] = to
	}
	b, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	overlay = filepath.Join(dir, "overlay.json")
	return overlay, os.WriteFile(overlay, b, 0o600)
}
