package node

import (
	"errors"
	"fmt"

	"mover/node/config"
	"mover/peer"
)

// Reload takes over what of a configuration needs no restart: peers, delegates,
// roots, tokens, socket users, certificates. Jobs go on. It returns the settings that differ
// and do need one, as config.Reloadable does. What could not be taken over is
// in the error, and is as before. One call at a time.
func (n *Node) Reload(next *config.Config) (needRestart []string, err error) {
	needRestart = config.Reloadable(n.cfg, next)
	var errs []error
	try := func(what string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", what, err))
		}
	}
	try("roots", n.roots.reload(next.Roots))
	id, _, err := peer.LoadOrCreate(n.cfg.IdentityDir(), n.cfg.Node.Name)
	if err == nil {
		err = n.control.Reload(id, trustOf(next))
	}
	if err == nil {
		n.identity.Store(id)
		try("control.ca", n.noteCA(next.Control.CA))
	}
	try("peers", err)
	if err == nil {
		n.live.Store(next)
		n.pace.SetRate(rateBytes(next.Jobs.BandwidthLimit))
	}
	try("api.tokens_file", n.web.tokens.Reload(next.API.TokensFile))
	users, err := socketUsers(next.API.SocketUsers) // its errors name the setting
	if err == nil {
		n.web.api.SetSocketUsers(users)
	} else {
		errs = append(errs, err)
	}
	try("api.tls_cert", n.web.loadCertificate(next))
	return needRestart, errors.Join(errs...)
}

// trustOf is whom a configuration trusts.
func trustOf(c *config.Config) peer.Trust {
	trust := peer.Trust{Peers: map[string]peer.PeerConfig{}, CAFile: c.Control.CA}
	for name, p := range c.Peers {
		trust.Peers[name] = peer.PeerConfig{Addresses: p.Addresses, Fingerprint: p.Fingerprint}
	}
	return trust
}

// rateBytes is a rate in bytes per second, as pacers take it.
func rateBytes(r config.Rate) int64 { return int64(r) / 8 }
