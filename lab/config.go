package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Places in a guest. All in memory; Reset empties moverDir.
const (
	moverDir   = "/run/mover"
	stateDir   = moverDir + "/state"
	configFile = moverDir + "/config.yaml"
	// identityDir keeps the state directory as it was when the node's identity
	// was made, which under emulation takes seconds.
	identityDir = "/run/lab/state"

	apiAddress  = "127.0.0.1:9470"
	controlPort = "9471"
)

// DataDir is the node's root "data", which the peer may be sent files of, and
// IncomingDir its root "incoming", which the peer may write to. Both are a tmpfs.
const (
	DataDir     = moverDir + "/data"
	IncomingDir = moverDir + "/incoming"
)

// Settings say how a node runs; the zero value is the lab's ordinary one.
type Settings struct {
	// Provider is "ibv" (if empty) or "soft": software verbs over the rails.
	Provider string
	// Set changes or adds settings of the configuration: {"jobs.stall_after":
	// "3s"}. A value is what YAML can hold; nil removes the setting.
	Set map[string]any
	// Wrap goes before the program: {"setpriv", "--reuid=1000", "--"}.
	Wrap []string
}

// configNode is what a configuration says of the node and its peer.
type configNode struct {
	name, peer      string
	address         []string // of each rail
	peerAddress     []string
	peerFingerprint string // "" leaves the peer and the roots out
}

// render returns the node's configuration file. What it does not say is
// mover's default.
func (c configNode) render(s Settings) ([]byte, error) {
	type m = map[string]any
	control := func(addresses []string) []string {
		var out []string
		for _, a := range addresses {
			out = append(out, a+":"+controlPort)
		}
		return out
	}
	config := m{
		"node":    m{"name": c.name, "state_dir": stateDir},
		"api":     m{"listen": apiAddress},
		"control": m{"listen": control(c.address)},
		// An emulated rail carries some 15 MB/s: with the defaults, made for
		// a thousand times that, what is in flight would take longer than any
		// deadline. 1 Gbit/s x 5 ms leaves the least that the engine keeps; an
		// acknowledgement may take long on a busy host.
		"session": m{"slot_payload": "256KiB", "segment": "1MiB", "rail_rate": "1Gbit/s", "lanes_per_rail": 2, "lane_depth": 8,
			"ack_timeout": "268ms"},
		"memory": m{"arena": "128MiB", "session_share": "32MiB"},
	}
	switch s.Provider {
	case "", "ibv":
		config["devices"] = m{"providers": []string{"ibv"}, "fallback": "forbid"}
	case "soft":
		config["devices"] = m{"providers": []string{"soft"}}
		config["soft"] = m{"addresses": c.address, "allow_cleartext": true}
	default:
		return nil, fmt.Errorf("provider %q; allowed: ibv, soft", s.Provider)
	}
	if c.peerFingerprint != "" {
		config["peers"] = m{c.peer: m{"addresses": control(c.peerAddress), "fingerprint": c.peerFingerprint}}
		config["roots"] = m{
			"data":     m{"path": DataDir, "read": []string{c.peer}},
			"incoming": m{"path": IncomingDir, "write": []string{c.peer}},
		}
	}
	for _, key := range slices.Sorted(maps.Keys(s.Set)) {
		if err := set(config, key, s.Set[key]); err != nil {
			return nil, err
		}
	}
	text, err := yaml.Marshal(config)
	if err != nil {
		return nil, fmt.Errorf("configuration of node %s: %w", c.name, err)
	}
	return text, nil
}

// set changes one setting by its path with dots.
func set(config map[string]any, key string, value any) error {
	at := config
	parts := strings.Split(key, ".")
	for _, part := range parts[:len(parts)-1] {
		next, ok := at[part]
		if !ok {
			next = map[string]any{}
			at[part] = next
		}
		if at, ok = next.(map[string]any); !ok {
			return fmt.Errorf("setting %s: %s has no settings below it", key, part)
		}
	}
	last := parts[len(parts)-1]
	if value == nil {
		delete(at, last)
	} else {
		at[last] = value
	}
	return nil
}
