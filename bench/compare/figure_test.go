package main

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// TestFiguresAndTargets pins the names that other programs read, with their
// targets; 0 is a figure shown without one.
func TestFiguresAndTargets(t *testing.T) {
	want := map[string]float64{
		"mem-none-iperf3": 1, "mem-crc32c-iperf3": 0.75,
		"file2g-tmpfs-gridftp": 1.3, "file2g-tmpfs-cp": 0.33, "file2g-tmpfs-rsync": 3,
		"file2g-disk-rsync": 1, "file2g-disk-gridftp": 0, "file2g-disk-cp": 0,
		"small2k-tmpfs-rsync": 2, "small2k-disk-rsync": 2,
		"buffer-none-iperf3": 1, "buffer-crc32c-iperf3": 0.75,
		"submits-per-second": 1, "submit-p95": 1, "small-beside-huge": 1,
	}
	for _, f := range figures {
		target, ok := want[f.name]
		if !ok || f.target != target {
			t.Errorf("%s has target %v, want %v (known: %v)", f.name, f.target, target, ok)
		}
		delete(want, f.name)
	}
	if len(want) > 0 {
		t.Errorf("missing or named twice: %v", want)
	}
}

func TestFigureResult(t *testing.T) {
	f := figure{name: "x", kind: fileFigure, peer: "cp", target: 0.33}
	e, err := f.result("ext4", "cp -x", []float64{2, 2, 4}, []float64{1, 2, 1})
	if err != nil {
		t.Fatal(err)
	}
	if e.Ratio != 0.5 || e.Name != "x" || e.Peer != "cp" || e.Unit != "s" || e.Filesystem != "ext4" || e.Setting != "cp -x" || *e.Target != 0.33 {
		t.Errorf("got %+v", e)
	}
	if _, err := f.result("ext4", "", nil, nil); err == nil || !strings.HasPrefix(err.Error(), "x: ") {
		t.Errorf("no measurements: %v", err)
	}
	f.kind, f.target = memoryFigure, 0
	if e, err = f.result("memory", "", []float64{2}, []float64{1}); err != nil || e.Ratio != 2 || e.Unit != "Gbit/s" || e.Target != nil {
		t.Errorf("a rate: %+v, %v", e, err)
	}
}

func TestSelectFigures(t *testing.T) {
	all, err := selectFigures("")
	if err != nil || len(all) != len(figures) {
		t.Fatalf("no selection: %d figures, %v", len(all), err)
	}
	some, err := selectFigures(" file2g-tmpfs-cp, mem-none-iperf3 ,")
	if err != nil || len(some) != 2 || some[0].name != "mem-none-iperf3" || some[1].name != "file2g-tmpfs-cp" {
		t.Errorf("got %v, %v", some, err)
	}
	if _, err := selectFigures("mem-none"); err == nil || !strings.Contains(err.Error(), "mem-none-iperf3") {
		t.Errorf("an unknown name gave %v; want the known ones listed", err)
	}
	if _, err := selectFigures(","); err == nil {
		t.Error("a list of nothing was accepted")
	}
}

// TestPackages keeps the list the Makefile installs equal to what the host
// facts report.
func TestPackages(t *testing.T) {
	data, err := os.ReadFile("../packages.txt")
	if err != nil {
		t.Fatal(err)
	}
	listed := append(strings.Fields(string(data)), "coreutils")
	if !slices.Equal(listed, peerPackages) {
		t.Errorf("packages.txt and coreutils: %v; host facts: %v", listed, peerPackages)
	}
}

func TestOptions(t *testing.T) {
	var said strings.Builder
	o, err := parseOptions([]string{"-baseline", "-size", "64MiB", "-pairs", "9", "-only", "mem-none-iperf3"}, &said)
	if err != nil || o.size != 64<<20 || o.pairs != 9 || len(o.figures) != 1 {
		t.Errorf("got %+v, %v", o, err)
	}
	for _, bad := range [][]string{
		{"-baseline", "-pairs", "0"}, {"-baseline", "-size", "2"}, {"-baseline", "-size", "-1GiB"},
		{"-baseline", "-seconds", "0"}, {"-baseline", "extra"}, {"-only", "nonsense"},
		{"-bin", "/nonexistent/mover"},
	} {
		if _, err := parseOptions(bad, &said); err == nil {
			t.Errorf("%v was accepted", bad)
		}
	}
}
