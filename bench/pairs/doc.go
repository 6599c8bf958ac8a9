// Package pairs compares mover with another program in pairs of runs, and
// writes what was found: the shape of out/bench.json and out/lab-bench.json.
//
// A pair is one run of each, directly after each other, the order swapped from
// pair to pair, so that a machine which slows down or speeds up does so for
// both. It gives one ratio, oriented so that more than 1 means mover is ahead;
// reported are the median of the ratios and a 95 % bootstrap interval of that
// median. The median, because one pair disturbed by another tenant of the
// machine must not decide the figure.
//
// The package knows nothing of what is measured, nor where.
//
//	ours, theirs, err := pairs.Measure(ctx, 7, runMover, runPeer)
//	e := pairs.Entry{Name: "bw", Peer: "ib_write_bw", Unit: "Gbit/s", Filesystem: "memory", Target: &target}
//	err = e.Compare(pairs.HigherIsBetter, ours, theirs)
//	err = pairs.WriteFile("out/bench.json", []pairs.Entry{e})
//	err = pairs.Table(os.Stdout, []pairs.Entry{e})
package pairs

// Quotable is the number of pairs below which a figure is for trying things
// out and not for quoting.
const Quotable = 7
