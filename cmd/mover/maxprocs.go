package main

import (
	"fmt"
	"log/slog"
	"runtime"

	"go.uber.org/automaxprocs/maxprocs"

	"mover/node/config"
	"mover/numa"
)

// setMaxProcs sets GOMAXPROCS from the CPU quota and then leaves room beside
// the pollers: a locked, spinning poller occupies a P for good, and with too
// few of them the control plane would wait for preemption. (That is why the
// package is not imported blank: it rounds a quota of 1.5 CPUs down to 1.)
func setMaxProcs(cfg *config.Config, log *slog.Logger) error {
	_, err := maxprocs.Set(maxprocs.Logger(func(format string, args ...any) {
		log.Debug("GOMAXPROCS: " + fmt.Sprintf(format, args...))
	}))
	if err != nil {
		log.Warn("the CPU quota cannot be read; GOMAXPROCS is left alone", "error", err)
	}
	topology, err := numa.Read("/sys")
	if err != nil {
		return fmt.Errorf("reading the topology: %w", err)
	}
	if least := procsFor(pollers(cfg, topology)); runtime.GOMAXPROCS(0) < least {
		runtime.GOMAXPROCS(least)
	}
	return nil
}

// pollers is the most pollers there can be: which nodes have a port is known
// only once devices are open, and a few Ps too many cost nothing.
func pollers(cfg *config.Config, topology *numa.Topology) int {
	return max(len(cfg.Pollers.CPUs), cfg.Pollers.PerNode*len(topology.Nodes))
}

// procsFor is one P for each poller, one for the control plane, one for
// readers and writers.
func procsFor(pollers int) int { return pollers + 2 }
