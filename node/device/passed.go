package device

import (
	"slices"
	"strings"

	"mover/node/config"
)

// passedOver are the providers that were not used, and why.
type passedOver []passedProvider

type passedProvider struct {
	name string
	why  []*Problem
}

// found tells what was found, for the reason that is shown with every rail.
func (p passedOver) found() string { return p.text(func(w *Problem) string { return w.What }) }

// withFixes also tells what to do.
func (p passedOver) withFixes() string { return p.text((*Problem).Error) }

func (p passedOver) text(of func(*Problem) string) string {
	var providers []string
	for _, x := range p {
		var all []string
		for _, w := range x.why {
			all = append(all, of(w))
		}
		providers = append(providers, x.name+": "+strings.Join(all, "; "))
	}
	return strings.Join(providers, "; ")
}

// remedy is what to do besides the fixes of the problems.
func remedy(cfg *config.Config, passed passedOver) string {
	if cfg.Devices.Fallback == "forbid" {
		return "see `mover doctor`, or set devices.fallback: allow to run without RDMA"
	}
	for _, p := range passed {
		if slices.ContainsFunc(p.why, func(w *Problem) bool { return w.Fix != "" }) {
			return "see `mover doctor`"
		}
	}
	return "change devices.providers or devices.names (see `mover devices`)"
}
