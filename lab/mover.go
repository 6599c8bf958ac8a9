package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"

	"mover/client"
	"mover/lab/remote"
)

const (
	// readyDeadline is for an emulated host with others beside it.
	readyDeadline = 2 * time.Minute
	// stopDeadline: mover promises 10 s, emulation takes its time.
	stopDeadline = time.Minute
)

// moverProcess is the mover node in a guest, if one runs.
type moverProcess struct {
	mu      sync.Mutex
	process *Background
	client  *client.Client // of its API; nil until it was needed
	http    *http.Client   // connects in the guest
}

// StartMover starts the node and returns once it is ready. It runs until it
// is stopped or the scenario ends; ctx bounds the start alone. What it prints
// is in the scenario's NAME.NODE.log, and later in MoverLog.
func (n *Node) StartMover(ctx context.Context, s Settings) error {
	ctx, cancel := context.WithTimeout(ctx, readyDeadline)
	defer cancel()
	b, err := n.LaunchMover(ctx, s)
	if err != nil {
		return err
	}
	return n.AwaitReady(ctx, b)
}

// LaunchMover starts the node and does not wait, for one that is expected to
// refuse to start. Its files are kept from one start to the next, until Reset.
func (n *Node) LaunchMover(ctx context.Context, s Settings) (*Background, error) {
	text, err := n.config(n.peer.fingerprint).render(s)
	if err != nil {
		return nil, err
	}
	if err := n.Remote().WriteFile(ctx, configFile, text, 0o644); err != nil {
		return nil, fmt.Errorf("guest %s: %w", n.Name, err)
	}
	args := append(append([]string{}, s.Wrap...), MoverProgram, "run", "--config", configFile)
	n.mover.mu.Lock()
	defer n.mover.mu.Unlock()
	if p := n.mover.process; p != nil {
		select {
		case <-p.Done():
		default:
			return nil, fmt.Errorf("node %s runs already", n.Name)
		}
	}
	b, err := n.Start(n.lab.life(), "mover", remote.Command{Args: args})
	if err != nil {
		return nil, fmt.Errorf("start node %s: %w", n.Name, err)
	}
	n.mover.process, n.mover.client = b, nil
	return b, nil
}

// MoverProgram is the mover under test in a guest: a copy, made at boot, since
// a file of the host may change, and takes longer to start.
const MoverProgram = "/run/lab/mover"

// AwaitReady waits until the node's API says that it takes jobs. A node that
// ends instead is an error with what it said.
func (n *Node) AwaitReady(ctx context.Context, b *Background) error {
	return Await(ctx, "node "+n.Name+" ready", func(ctx context.Context) (bool, string, error) {
		select {
		case <-b.Done():
			return false, "", fmt.Errorf("the node ended: %s", b.Tail())
		default:
		}
		status, text, err := n.get(ctx, "/readyz", "")
		if err != nil {
			return false, err.Error(), nil // not listening yet
		}
		return status == http.StatusOK, text, nil
	})
}

// Mover is the node's process, which may have ended; nil if none was started.
func (n *Node) Mover() *Background {
	n.mover.mu.Lock()
	defer n.mover.mu.Unlock()
	return n.mover.process
}

// MoverLog is what the node printed so far, over all its starts in the
// scenario.
func (n *Node) MoverLog() string {
	if p := n.Mover(); p != nil {
		return p.Output()
	}
	return ""
}

// ErrNotRunning means that no mover runs in the guest.
var ErrNotRunning = errors.New("the node does not run")

// StopMover ends the node politely, and fails if it does not end well. A node
// that does not run is no error.
func (n *Node) StopMover(ctx context.Context) error {
	p := n.Mover()
	if p == nil {
		return nil
	}
	select {
	case <-p.Done():
		return nil
	default:
	}
	n.lab.Note("%s: stop the node", n.Name)
	if err := p.Signal(ctx, syscall.SIGTERM); err != nil {
		return fmt.Errorf("stop node %s: %w", n.Name, err)
	}
	timer := time.NewTimer(stopDeadline)
	defer timer.Stop()
	select {
	case <-p.Done():
	case <-timer.C:
		p.Kill()
		return fmt.Errorf("node %s did not stop within %v and was killed; it said: %s", n.Name, stopDeadline, p.Tail())
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	exit, err := p.Wait()
	if err == nil && exit.Code != 0 {
		err = fmt.Errorf("node %s ended %+v: %s", n.Name, exit, p.Tail())
	}
	return err
}

// KillMover ends the node with SIGKILL and returns when it has gone.
func (n *Node) KillMover(ctx context.Context) error {
	if err := n.SignalMover(ctx, syscall.SIGKILL); err != nil {
		return err
	}
	select {
	case <-n.Mover().Done():
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// SignalMover sends a signal to the node: SIGSTOP and SIGCONT, for instance.
func (n *Node) SignalMover(ctx context.Context, signal syscall.Signal) error {
	p := n.Mover()
	if p == nil {
		return ErrNotRunning
	}
	n.lab.Note("%s: %v to the node", n.Name, signal)
	return p.Signal(ctx, signal)
}

// API is the client of the node's HTTP API, as administrator. It connects in
// the guest, over loopback, whatever happens to the rails.
func (n *Node) API(ctx context.Context) (*client.Client, error) {
	n.mover.mu.Lock()
	defer n.mover.mu.Unlock()
	if n.mover.client != nil {
		return n.mover.client, nil
	}
	token, err := n.token(ctx)
	if err != nil {
		return nil, err
	}
	c, err := client.New(client.Config{Server: "http://" + apiAddress, Token: token, HTTPClient: n.mover.http})
	if err != nil {
		return nil, err
	}
	n.mover.client = c
	return c, nil
}

// TokenFile is the path, in the guest, of the token that the node's first start
// leaves for its host's tools.
const TokenFile = stateDir + "/token"

func (n *Node) token(ctx context.Context) (string, error) {
	text, err := n.ReadFile(ctx, TokenFile)
	if err != nil {
		return "", fmt.Errorf("the node's token: %w", err)
	}
	return strings.TrimSpace(text), nil
}

const maxAnswer = 4 << 20

// get asks the node's API, with a token unless it is "".
func (n *Node) get(ctx context.Context, path, token string) (status int, text string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+apiAddress+path, nil)
	if err != nil {
		return 0, "", err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := n.mover.http.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	return resp.StatusCode, strings.TrimSpace(string(data)), err
}

// config is the node as its configuration shows it.
func (n *Node) config(peerFingerprint string) configNode {
	c := configNode{name: n.Name, peer: n.peer.Name, peerFingerprint: peerFingerprint}
	for rail := range Rails {
		c.address = append(c.address, n.Address(rail))
		c.peerAddress = append(c.peerAddress, n.peer.Address(rail))
	}
	return c
}

var fingerprintPattern = regexp.MustCompile(`sha256:[0-9a-f]{64}`)

// resetMover empties the node's directories; the first time it makes its
// identity. No node runs.
func (n *Node) resetMover(ctx context.Context) error {
	n.mover.mu.Lock()
	defer n.mover.mu.Unlock()
	if n.mover.http == nil {
		n.mover.http = &http.Client{Transport: &http.Transport{
			DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				return n.Remote().Dial(ctx, network, address)
			},
		}}
	}
	n.mover.http.CloseIdleConnections()
	n.mover.process, n.mover.client = nil, nil
	if _, err := n.Sh(ctx, `rm -rf "$1"; mkdir -p "$1" "$2" "$3"; [ ! -e "$4" ] || cp -a "$4" "$5"`,
		moverDir, DataDir, IncomingDir, identityDir, stateDir); err != nil {
		return fmt.Errorf("reset: %w", err)
	}
	if n.fingerprint != "" {
		return nil
	}
	// Its own is enough of a configuration to make an identity.
	text, err := n.config("").render(Settings{Provider: "soft"})
	if err != nil {
		return err
	}
	if err := n.Remote().WriteFile(ctx, configFile, text, 0o644); err != nil {
		return fmt.Errorf("guest %s: %w", n.Name, err)
	}
	out, err := n.Run(ctx, MoverProgram, "identity", "--fingerprint", "--config", configFile)
	if err != nil {
		return err
	}
	if n.fingerprint = fingerprintPattern.FindString(out); n.fingerprint == "" {
		return fmt.Errorf("`mover identity` prints no fingerprint: %q", out)
	}
	_, err = n.Run(ctx, "cp", "-a", stateDir, identityDir)
	return err
}
