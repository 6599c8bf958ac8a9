package main

import (
	"fmt"
	"slices"
	"strings"

	"mover/bench/pairs"
)

// figureKind says how a figure is measured.
type figureKind int

const (
	memoryFigure  figureKind = iota // a rate over loopback, Gbit/s
	fileFigure                      // the time one file takes, s
	treeFigure                      // the time 2,000 small files take, s
	bufferFigure                    // a rate from buffer to buffer, Gbit/s
	submitFigure                    // durable submits a second
	latencyFigure                   // p95 of one submit while transfers run, ms
	besideFigure                    // p95 of small jobs beside a huge one, ms
)

// ownTarget is the peer of figures that are held against a number and not
// against another program.
const ownTarget = "target"

// placeKind names one of the two file systems a file figure runs on.
type placeKind string

const (
	onTmpfs placeKind = "tmpfs"
	onDisk  placeKind = "disk"
)

// figure is one comparison of the table below.
type figure struct {
	name   string
	kind   figureKind
	peer   string    // "iperf3", "gridftp", "rsync", "cp", ownTarget
	verify string    // mover's verify setting
	place  placeKind // file and tree figures only
	target float64   // ratio aimed at; 0: shown without a target
}

// figures is everything the harness knows to measure, in the order it is
// measured and printed. "At most three times cp's time" is a ratio of 0.33.
var figures = []figure{
	{name: "mem-none-iperf3", kind: memoryFigure, peer: "iperf3", verify: "none", target: 1.0},
	{name: "mem-crc32c-iperf3", kind: memoryFigure, peer: "iperf3", verify: "crc32c", target: 0.75},
	{name: "file2g-tmpfs-gridftp", kind: fileFigure, peer: "gridftp", verify: "crc32c", place: onTmpfs, target: 1.3},
	{name: "file2g-tmpfs-cp", kind: fileFigure, peer: "cp", verify: "crc32c", place: onTmpfs, target: 0.33},
	{name: "file2g-tmpfs-rsync", kind: fileFigure, peer: "rsync", verify: "crc32c", place: onTmpfs, target: 3},
	{name: "file2g-disk-rsync", kind: fileFigure, peer: "rsync", verify: "crc32c", place: onDisk, target: 1},
	{name: "file2g-disk-gridftp", kind: fileFigure, peer: "gridftp", verify: "crc32c", place: onDisk},
	{name: "file2g-disk-cp", kind: fileFigure, peer: "cp", verify: "crc32c", place: onDisk},
	{name: "small2k-tmpfs-rsync", kind: treeFigure, peer: "rsync", verify: "crc32c", place: onTmpfs, target: 2},
	{name: "small2k-disk-rsync", kind: treeFigure, peer: "rsync", verify: "crc32c", place: onDisk, target: 2},
	{name: "buffer-none-iperf3", kind: bufferFigure, peer: "iperf3", verify: "none", target: 1.0},
	{name: "buffer-crc32c-iperf3", kind: bufferFigure, peer: "iperf3", verify: "crc32c", target: 0.75},
	{name: "submits-per-second", kind: submitFigure, peer: ownTarget, verify: "crc32c", target: 1},
	{name: "submit-p95", kind: latencyFigure, peer: ownTarget, verify: "crc32c", target: 1},
	{name: "small-beside-huge", kind: besideFigure, peer: ownTarget, verify: "crc32c", target: 1},
}

// what is the name, in the data folder, of what a file or tree figure copies.
func (f figure) what() string {
	if f.kind == treeFigure {
		return treeName
	}
	return sourceName
}

func (f figure) orientation() pairs.Orientation {
	switch f.kind {
	case memoryFigure, bufferFigure, submitFigure:
		return pairs.HigherIsBetter
	}
	return pairs.LowerIsBetter
}

func (f figure) unit() string {
	switch f.kind {
	case memoryFigure, bufferFigure:
		return "Gbit/s"
	case submitFigure:
		return "1/s"
	case latencyFigure, besideFigure:
		return "ms"
	}
	return "s"
}

// selectFigures returns the figures named in the comma-separated list only,
// in table order; all of them when it is empty. An unknown name is an error
// that lists the known ones.
func selectFigures(only string) ([]figure, error) {
	if strings.TrimSpace(only) == "" {
		return figures, nil
	}
	var wanted []string
	for _, name := range strings.Split(only, ",") {
		name = strings.TrimSpace(name)
		if name == "" {
			continue
		}
		if !slices.ContainsFunc(figures, func(f figure) bool { return f.name == name }) {
			var known []string
			for _, f := range figures {
				known = append(known, f.name)
			}
			return nil, fmt.Errorf("-only: no figure is called %q; known are %s", name, strings.Join(known, ", "))
		}
		wanted = append(wanted, name)
	}
	if len(wanted) == 0 {
		return nil, fmt.Errorf("-only: %q names no figure", only)
	}
	var selected []figure
	for _, f := range figures {
		if slices.Contains(wanted, f.name) {
			selected = append(selected, f)
		}
	}
	return selected, nil
}

// result makes the entry of a figure from its measurements; ours is empty in
// a baseline run. Both slices are in pair order.
func (f figure) result(filesystem, setting string, ours, theirs []float64) (pairs.Entry, error) {
	e := pairs.Entry{Name: f.name, Peer: f.peer, Unit: f.unit(), Filesystem: filesystem, Setting: setting}
	if f.target > 0 {
		e.Target = &f.target
	}
	if err := e.Compare(f.orientation(), ours, theirs); err != nil {
		return pairs.Entry{}, fmt.Errorf("%s: %w", f.name, err)
	}
	return e, nil
}
