// Package node is one mover process: it builds identity, roots, data path,
// control plane, job queue and HTTP API from a configuration, connects them,
// and starts and stops them in order.
//
//	n, err := node.New(cfg, version, log) // what is missing on this host, and what to do
//	err = n.Run(ctx)             // until ctx ends; nil after a clean stop
//
// It decides nothing that a package below decides: what it has of its own is
// the Router that carries jobs out and the Receiver that takes files in.
package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"mover/buffer"
	"mover/engine"
	"mover/job"
	"mover/node/config"
	"mover/node/datapath"
	"mover/peer"
)

// Node is a running node, or one about to be.
type Node struct {
	cfg       *config.Config
	live      atomic.Pointer[config.Config] // what of it Reload has replaced: peers, delegates
	version   string                        // of the program, for the API
	log       *slog.Logger
	lock      *stateLock
	identity  atomic.Pointer[peer.Identity]
	caEnd     atomic.Pointer[time.Time] // when the first of the CAs expires
	roots     *roots
	path      *datapath.Path
	control   *peer.Control
	sessions  *sessions
	inbounds  *inbounds
	itemLines *lineLimit // of the log, about items that went wrong
	journal   *journal
	receiving *job.Receiving
	queue     *job.Queue
	buffers   *buffer.Registry
	pace      *engine.Pacer // of all jobs that start here
	registry  *prometheus.Registry
	hardware  *portReader // counters of ports
	web       *web
}

// maxReceiving bounds the items received at a time, keepReceived those
// remembered after their end.
const (
	maxReceiving = 4096
	keepReceived = 1000
)

// New builds the node: keys and tokens (created if there are none), roots,
// devices, memory, and the addresses it listens on. Nothing runs yet.
func New(cfg *config.Config, version string, log *slog.Logger) (_ *Node, err error) {
	n := &Node{cfg: cfg, version: version, log: log, inbounds: newInbounds(), itemLines: newLineLimit(time.Now), registry: prometheus.NewRegistry()}
	n.live.Store(cfg)
	defer func() {
		if err != nil {
			n.abandon()
		}
	}()
	selection, err := datapath.Prepare(cfg, log)
	if err != nil {
		return nil, err
	}
	if err := n.openState(); err != nil {
		return nil, err
	}
	if n.roots, err = openRoots(cfg.Roots); err != nil {
		return nil, err
	}
	n.recoverReceiving()
	n.pace = engine.NewPacer(rateBytes(cfg.Jobs.BandwidthLimit))
	if err := n.openBuffers(); err != nil {
		return nil, err
	}
	if n.path, err = datapath.Open(cfg, log, selection); err != nil {
		return nil, err
	}
	if err := n.openControl(); err != nil {
		return nil, err
	}
	n.receiving = job.NewReceiving(job.SystemClock{}, maxReceiving, keepReceived)
	n.queue, err = job.NewQueue(job.Config{
		NodeName: cfg.Node.Name, Router: router{n}, Logger: log,
		MaxQueued: cfg.Jobs.MaxQueued, MaxRunning: cfg.Jobs.MaxRunning, MaxAttempts: cfg.Jobs.MaxAttempts, Keep: cfg.Jobs.Keep, KeepMax: cfg.Jobs.KeepMax, SmallBytes: int64(cfg.Jobs.SmallBytes), StateDir: cfg.Node.StateDir,
	})
	if err != nil {
		return nil, err
	}
	n.hardware = newPortReader("/sys", hardwarePorts(n.path.Selection()))
	if err := n.registerMetrics(); err != nil {
		return nil, err
	}
	n.web, err = newWeb(n)
	return n, err
}

// openState makes the state directory and what it must have.
func (n *Node) openState() error {
	dir := n.cfg.Node.StateDir
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("node.state_dir: %w; create it for the user that runs mover, or set another", err)
	}
	var err error
	if n.lock, err = lockState(dir); err != nil {
		return err
	}
	id, created, err := peer.LoadOrCreate(n.cfg.IdentityDir(), n.cfg.Node.Name)
	if err != nil {
		return err
	}
	if created {
		n.log.Info("created this node's key and certificate", "in", n.cfg.IdentityDir(), "fingerprint", id.Fingerprint)
	}
	n.identity.Store(id)
	if n.journal, err = openJournal(dir, n.log); err != nil {
		return err
	}
	return n.openTokens()
}

// recoverReceiving cleans up behind an earlier process that was killed, and
// learns what it published.
func (n *Node) recoverReceiving() {
	for _, e := range n.journal.recover(n.roots) {
		if e.Attempt != 0 {
			n.inbounds.naming(e.key(), e.Root, string(e.Path), e.Names)
			continue
		}
		for _, forgotten := range n.inbounds.recall(e.key(), e.Done) {
			n.journal.remove(forgotten)
		}
	}
}

func (n *Node) openControl() error {
	n.sessions = newSessions(n)
	control, err := peer.New(peer.Config{
		Identity: n.identity.Load(), Listen: n.cfg.Control.Listen, Trust: trustOf(n.cfg), Logger: n.log,
		DialTimeout: n.cfg.Control.DialTimeout, Accept: n.sessions.accept, Describe: n.describe, Answer: n.answer,
	})
	if err != nil {
		return err
	}
	n.control, n.sessions.control = control, control
	return n.noteCA(n.cfg.Control.CA)
}

// knownPeer reports whether a name can be dialled: it is configured, or the CA
// may vouch for it.
func (n *Node) knownPeer(name string) bool {
	live := n.live.Load()
	_, listed := live.Peers[name]
	return listed || live.Control.CA != ""
}

// Run runs the node until ctx ends, and then stops it within stopLimit.
func (n *Node) Run(ctx context.Context) error {
	if err := n.path.Start(); err != nil {
		n.abandon()
		return err
	}
	n.control.Start()
	n.announce()
	forwarding, stopForwarding := context.WithCancel(ctx)
	var forwarder sync.WaitGroup
	forwarder.Go(func() { n.forward(forwarding) })
	defer forwarder.Wait()
	defer stopForwarding()
	served := make(chan error, 1)
	webCtx, stopWeb := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWeb()
	go func() { served <- n.web.serve(webCtx) }()
	var err error
	select {
	case <-ctx.Done():
	case err = <-served:
		err = fmt.Errorf("the HTTP API ended: %w", err)
		served = nil
	}
	return errors.Join(err, n.stop(stopWeb, served))
}

// stopLimit bounds stopping; the command gives up after 10 s. attemptsLimit is
// how much of it attempts have to end by themselves: with a peer that is silent
// that takes until their writes are given up, and ending the session is faster.
const (
	stopLimit     = 8 * time.Second
	attemptsLimit = 3 * time.Second
)

// stop ends what Run started, in the order in which it depends on each other:
// no new jobs, then no attempts, no sessions, no data path.
func (n *Node) stop(stopWeb func(), served <-chan error) error {
	ctx, cancel := context.WithTimeout(context.Background(), stopLimit)
	defer cancel()
	n.web.notReady()
	var errs []error
	attempts, cancelAttempts := context.WithTimeout(ctx, attemptsLimit)
	defer cancelAttempts()
	late := n.queue.Close(attempts)
	stopWeb()
	if served != nil {
		select {
		case err := <-served:
			errs = append(errs, err)
		case <-ctx.Done():
			errs = append(errs, errors.New("the HTTP API did not stop in time"))
		}
	}
	ended := n.path.Close(ctx)
	errs = append(errs, ended)
	if ended == nil {
		n.sessions.wait()
	}
	if late != nil {
		errs = append(errs, n.queue.Close(ctx)) // their sessions have ended since
	}
	n.control.Close()
	n.closeBuffers()
	n.roots.close()
	n.lock.release()
	return errors.Join(errs...)
}

func (n *Node) closeBuffers() {
	if n.buffers == nil {
		return
	}
	if err := n.buffers.Close(); err != nil {
		n.log.Warn("buffers", "error", err)
	}
}

// abandon takes down what New built before it failed.
func (n *Node) abandon() {
	if n.web != nil {
		n.web.close()
	}
	if n.queue != nil {
		_ = n.queue.Close(context.Background()) // nothing runs in it
	}
	if n.control != nil {
		n.control.Close()
	}
	if n.path != nil {
		_ = n.path.Close(context.Background()) // nothing runs on it
	}
	n.closeBuffers()
	if n.roots != nil {
		n.roots.close()
	}
	n.lock.release()
}

// announce tells what a person needs to use the node.
func (n *Node) announce() {
	s := n.path.Selection()
	level := slog.LevelInfo
	if n.path.Software() {
		level = slog.LevelWarn
	}
	n.log.Log(context.Background(), level, "verbs provider", "provider", s.Provider.Name(), "why", s.Reason,
		"rails", len(s.Used()), "fallback", s.Fallback)
	n.warnOfDevices(s)
	n.log.Info("node is up", "node", n.cfg.Node.Name, "api", n.web.url(), "control", fmt.Sprint(n.control.Addrs()),
		"fingerprint", n.identity.Load().Fingerprint, "token", n.tokenHint())
}
