package main

import (
	"strings"
	"testing"

	"mover/bench/pairs"
)

func TestPrintTable(t *testing.T) {
	target := 1.3
	facts := hostFacts{
		Mover: "mover 1.2", CPU: "Fast CPU", CPUs: 2, MemoryBytes: 1 << 30, Kernel: "6.1", Arch: "amd64",
		TCPCongestion: "cubic", SizeBytes: 2 << 30, Pairs: 7, Packages: []packageFact{{"rsync", "3.2.7"}},
	}
	entries := []pairs.Entry{
		{Name: "met-it", Peer: "gridftp", Ours: 1, Theirs: 2, Unit: "s", Ratio: 2, Low: 1.9, High: 2.1, Filesystem: "tmpfs", Target: &target, Setting: "globus-url-copy -p 2"},
		{Name: "short-of-it", Peer: "gridftp", Ours: 2, Theirs: 2, Unit: "s", Ratio: 1, Low: 0.9, High: 1.1, Filesystem: "tmpfs", Target: &target},
		{Name: "just-shown", Peer: "cp", Ours: 2, Theirs: 2, Unit: "s", Ratio: 1, Low: 0.9, High: 1.1, Filesystem: "ext4"},
		{Name: "peer-alone", Peer: "cp", Theirs: 2, Unit: "s", Filesystem: "ext4", Target: &target},
	}
	var out strings.Builder
	if err := printTable(&out, facts, entries); err != nil {
		t.Fatal(err)
	}
	rows := map[string]string{}
	for line := range strings.Lines(out.String()) {
		name, _, _ := strings.Cut(line, " ")
		rows[name] = strings.Join(strings.Fields(line), " ")
	}
	for name, want := range map[string]string{
		"met-it":      "met-it tmpfs 1.00 2.00 s 2.00 1.90 .. 2.10 >= 1.30 met globus-url-copy -p 2",
		"short-of-it": "short-of-it tmpfs 2.00 2.00 s 1.00 0.90 .. 1.10 >= 1.30 short gridftp",
		"just-shown":  "just-shown ext4 2.00 2.00 s 1.00 0.90 .. 1.10 - shown cp",
		"peer-alone":  "peer-alone ext4 - 2.00 s - - >= 1.30 cp",
	} {
		if rows[name] != want {
			t.Errorf("row %s:\n got %q\nwant %q", name, rows[name], want)
		}
	}
	for _, fact := range []string{"mover 1.2", "Fast CPU", "Linux 6.1", "rsync 3.2.7", "TCP cubic"} {
		if !strings.Contains(out.String(), fact) {
			t.Errorf("the header does not say %q:\n%s", fact, out.String())
		}
	}
	if strings.Contains(out.String(), "fewer than") {
		t.Error("seven pairs are called too few")
	}
	facts.Pairs = 2
	out.Reset()
	if err := printTable(&out, facts, entries); err != nil || !strings.Contains(out.String(), "fewer than 7 pairs") {
		t.Errorf("two pairs are not called too few: %v", err)
	}
}
