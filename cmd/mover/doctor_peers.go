package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"slices"
	"strings"
	"sync"

	"mover/engine"
	"mover/node/config"
	"mover/peer"
)

// checkPeers asks every peer, at each of its addresses, what it would offer
// this node, and sees which rails come of it. That takes the node's identity;
// without one it can only be seen whether something answers.
func checkPeers(ctx context.Context, cfg *config.Config, offers []engine.PortOffer) []finding {
	if len(cfg.Peers) == 0 {
		return nil
	}
	id, err := peer.Load(cfg.IdentityDir(), cfg.Node.Name)
	if err != nil {
		fix, what := "run `mover doctor` as the user mover runs as", err.Error()
		if errors.Is(err, fs.ErrNotExist) {
			fix, what = "mover identity, or start the node once", "this node has no key yet, so that peers cannot be asked"
		}
		return append([]finding{warn("identity", fix, "%s", what)}, eachPeer(cfg, func(name string, addresses []string) []finding {
			return reachPeer(ctx, name, addresses)
		})...)
	}
	trust := peer.Trust{Peers: map[string]peer.PeerConfig{}, CAFile: cfg.Control.CA}
	for name, p := range cfg.Peers {
		trust.Peers[name] = peer.PeerConfig{Addresses: p.Addresses, Fingerprint: p.Fingerprint}
	}
	control, err := peer.New(peer.Config{Identity: id, Trust: trust, Logger: discard, DialTimeout: checkWithin})
	if err != nil {
		return []finding{fail("peers", "correct control.ca and peers", "%v", err)}
	}
	defer control.Close()
	return eachPeer(cfg, func(name string, addresses []string) []finding {
		return askPeer(ctx, control, name, addresses, offers)
	})
}

// maxPeersAtOnce bounds the connections that are tried at a time.
const maxPeersAtOnce = 16

// eachPeer checks all peers at once, and keeps their order by name.
func eachPeer(cfg *config.Config, check func(name string, addresses []string) []finding) []finding {
	var names []string
	for name := range cfg.Peers {
		names = append(names, name)
	}
	slices.Sort(names)
	found := make([][]finding, len(names))
	places := make(chan struct{}, maxPeersAtOnce)
	var wait sync.WaitGroup
	for i, name := range names {
		var addresses []string
		for _, a := range cfg.Peers[name].Addresses {
			addresses = append(addresses, strings.ReplaceAll(a, config.NodePlaceholder, name))
		}
		wait.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			found[i] = check(name, addresses)
		})
	}
	wait.Wait()
	return slices.Concat(found...)
}

func reachPeer(ctx context.Context, name string, addresses []string) []finding {
	ctx, cancel := context.WithTimeout(ctx, checkWithin)
	defer cancel()
	var out []finding
	for _, a := range addresses {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", a)
		if err != nil {
			out = append(out, unreachable(name, err))
			continue
		}
		conn.Close()
		out = append(out, ok("peer "+name, "%s can be reached; whether it is %s is not known", a, name))
	}
	return out
}

func unreachable(name string, err error) finding {
	return warn("peer "+name, "start mover there, open the port, or correct peers."+name+".addresses", "%v", err)
}

// askPeer tries each address, since a session may need any of them, and
// compares ports once.
func askPeer(ctx context.Context, control *peer.Control, name string, addresses []string, offers []engine.PortOffer) []finding {
	subject := "peer " + name
	var out []finding
	compared := false
	for _, a := range addresses {
		d, err := control.Describe(ctx, name, a)
		var refused *peer.RefusedError
		switch {
		case err == nil:
			out = append(out, ok(subject, "%s is %s, mover %s", a, name, d.Version))
			if !compared {
				compared = true
				out = append(out, matchPeer(name, offers, d)...)
			}
		case errors.As(err, &refused) && refused.ByPeer:
			out = append(out, fail(subject, "make "+name+" know this node: `mover identity` here prints what its configuration takes", "%v", err))
		case errors.As(err, &refused):
			out = append(out, fail(subject, "correct peers."+name+".fingerprint: `mover identity --fingerprint` there prints it", "%v", err))
		case errors.Is(err, peer.ErrNoDescription):
			out = append(out, warn(subject, "upgrade mover there", "%s is %s, and too old to tell its ports", a, name))
		case errors.Is(err, peer.ErrBusy):
			// It was asked a moment ago, perhaps by another doctor: it is there.
			out = append(out, warn(subject, "run `mover doctor` again in a few seconds", "%s answers, but was asked too often just now", a))
		default:
			out = append(out, unreachable(name, err))
		}
	}
	return out
}

// matchPeer says which rails a session with a peer would have, and why some
// ports have none.
func matchPeer(name string, offers []engine.PortOffer, d *peer.Description) []finding {
	subject := "peer " + name
	if len(offers) == 0 {
		return nil // said by checkDevices
	}
	matches, findings := engine.MatchPorts(offers, d.Ports)
	var rails []string
	for _, m := range matches {
		if !m.Down {
			l, r := offers[m.Local], d.Ports[m.Remote]
			rails = append(rails, fmt.Sprintf("%s port %d - %s port %d (%s, MTU %v)", l.Device, l.Port, r.Device, r.Port, l.Provider, m.MTU))
		}
	}
	var out []finding
	bad := warn
	if len(rails) == 0 {
		bad = fail
	} else {
		out = append(out, ok(subject, "%s: %s", counted(int64(len(rails)), "rail"), strings.Join(rails, ", ")))
	}
	for _, f := range findings {
		text := f.Found
		if !strings.Contains(text, f.Device) {
			text = fmt.Sprintf("%s port %d: %s", f.Device, f.Port, f.Found)
		}
		if providersDiffer(offers, d.Ports) && d.Reason != "" {
			text += " (there: " + d.Reason + ")"
		}
		report := bad
		if f.Warning && len(rails) > 0 {
			report = warn
		}
		out = append(out, report(subject, f.Fix, "%s", text))
	}
	if len(rails) == 0 && len(findings) == 0 {
		out = append(out, fail(subject, "see `mover devices` on both nodes", "no rail can be made"))
	}
	return out
}

// providersDiffer: neither side has a port of a provider of the other.
func providersDiffer(a, b []engine.PortOffer) bool {
	for i := range a {
		if slices.ContainsFunc(b, func(p engine.PortOffer) bool { return p.Provider == a[i].Provider }) {
			return false
		}
	}
	return true
}
