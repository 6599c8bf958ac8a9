//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"go.yaml.in/yaml/v3"

	"mover/client"
)

const (
	// startLimit is how long a node may take until it answers. It is long
	// because the host may be busy; a node that hangs exceeds any limit.
	startLimit = 60 * time.Second
	// stopLimit is how long it may take after SIGTERM: three times what mover
	// promises.
	stopLimit = 30 * time.Second
	// stallAfter is the nodes' jobs.stall_after, short so that stopped
	// processes and stalled connections exceed it.
	stallAfter = 5 * time.Second
)

// node is one of the two, with the process that is it at the moment. Its
// methods may be called by any goroutine.
type node struct {
	name        string
	dir         string
	mover       string
	apiPort     int
	controlPort int
	fingerprint string
	client      *client.Client

	mu     sync.Mutex
	cmd    *exec.Cmd // nil while no process runs
	exited chan struct{}
	asked  bool // its end was asked for
	wrong  func(format string, args ...any)
}

// newNode makes a node's directories and its identity. Nothing runs yet.
func newNode(ctx context.Context, name, dir, mover string, ports *ports, wrong func(string, ...any)) (*node, error) {
	n := &node{name: name, dir: dir, mover: mover, wrong: wrong}
	for _, sub := range []string{"", "state", "data", "incoming", "small"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o700); err != nil {
			return nil, fmt.Errorf("the directory of node %s: %w", name, err)
		}
	}
	var err error
	if n.apiPort, err = ports.take(); err != nil {
		return nil, err
	}
	if n.controlPort, err = ports.take(); err != nil {
		return nil, err
	}
	if err := n.configure(nil); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	out, err := exec.CommandContext(ctx, mover, "identity", "--fingerprint", "--config", n.path("config.yaml")).Output()
	if err != nil {
		return nil, fmt.Errorf("the identity of node %s: %w", name, err)
	}
	n.fingerprint = strings.TrimSpace(string(out))
	return n, nil
}

func (n *node) path(elem ...string) string { return filepath.Join(append([]string{n.dir}, elem...)...) }

// configure writes the node's configuration; without other it has no peer yet.
func (n *node) configure(other *node) error {
	type m = map[string]any
	config := m{
		"node":    m{"name": n.name, "state_dir": n.path("state")},
		"api":     m{"listen": fmt.Sprintf("127.0.0.1:%d", n.apiPort)},
		"control": m{"listen": []string{fmt.Sprintf("127.0.0.1:%d", n.controlPort)}},
		"devices": m{"providers": []string{"soft"}},
		"soft":    m{"addresses": []string{"127.0.0.1", "127.0.0.2"}}, // two rails
		"memory":  m{"arena": "128MiB", "session_share": "32MiB"},
		// Small slots and segments: more of them to be cut between.
		"session": m{"slot_payload": "256KiB", "segment": "1MiB"},
		"pollers": m{"spin": "5us"},
		"workers": 2,
		"jobs":    m{"stall_after": stallAfter.String(), "keep_max": 200},
	}
	if other != nil {
		config["delegates"] = []string{other.name} // whose users pull from here
		config["peers"] = m{other.name: m{
			"addresses":   []string{fmt.Sprintf("127.0.0.1:%d", other.controlPort)},
			"fingerprint": other.fingerprint,
		}}
		both := []string{n.name, other.name}
		config["roots"] = m{
			"data":     m{"path": n.path("data"), "read": both},
			"incoming": m{"path": n.path("incoming"), "write": both},
			"small":    m{"path": n.path("small", smallRoot), "write": both},
		}
		if err := os.MkdirAll(n.path("small", smallRoot), 0o700); err != nil {
			return fmt.Errorf("the small root of node %s: %w", n.name, err)
		}
	}
	text, err := yaml.Marshal(config)
	if err != nil {
		return fmt.Errorf("the configuration of node %s: %w", n.name, err)
	}
	if err := os.WriteFile(n.path("config.yaml"), text, 0o600); err != nil {
		return fmt.Errorf("the configuration of node %s: %w", n.name, err)
	}
	return nil
}

// start runs the node and waits until it is ready.
func (n *node) start(ctx context.Context) error {
	log, err := os.OpenFile(n.logFile(), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("the log of node %s: %w", n.name, err)
	}
	defer log.Close()
	cmd := exec.Command(n.mover, "run", "--config", n.path("config.yaml"))
	cmd.Stdout, cmd.Stderr = log, log
	// A Ctrl-C is for torture alone, and a node must not outlive it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting node %s: %w", n.name, err)
	}
	exited := make(chan struct{})
	n.mu.Lock()
	n.cmd, n.exited, n.asked = cmd, exited, false
	n.mu.Unlock()
	go n.reap(cmd, exited)
	return n.awaitReady(ctx, exited)
}

// reap waits for a process; an end that nobody asked for is a defect.
func (n *node) reap(cmd *exec.Cmd, exited chan struct{}) {
	err := cmd.Wait()
	n.mu.Lock()
	asked := n.asked
	n.cmd = nil
	n.mu.Unlock()
	if !asked {
		n.wrong("node %s ended by itself: %v", n.name, err)
	}
	close(exited)
}

func (n *node) logFile() string { return n.path("log") }

func (n *node) awaitReady(ctx context.Context, exited <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	for {
		body, err := n.get(ctx, "/readyz")
		if err == nil {
			break
		}
		select {
		case <-exited:
			return fmt.Errorf("node %s ended while it started; see %s", n.name, n.logFile())
		default:
		}
		if !pause(ctx, 30*time.Millisecond) {
			return fmt.Errorf("node %s was not ready within %v: %w %s", n.name, startLimit, err, body)
		}
	}
	if n.client != nil {
		return nil
	}
	var err error
	n.client, err = client.New(client.Config{Server: n.url(), TokenFile: n.path("state", "token")})
	if err != nil {
		return fmt.Errorf("a client of node %s: %w", n.name, err)
	}
	return nil
}

func (n *node) url() string { return fmt.Sprintf("http://127.0.0.1:%d", n.apiPort) }

// get reads what the Go client has no call for. The token is sent if there is
// one yet.
func (n *node) get(ctx context.Context, path string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, n.url()+path, nil)
	if err != nil {
		return "", err
	}
	if token, err := os.ReadFile(n.path("state", "token")); err == nil {
		req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 4<<20))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = errors.New(resp.Status)
	}
	return string(body), err
}

// pid is the process's, 0 if there is none.
func (n *node) pid() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cmd == nil {
		return 0
	}
	return n.cmd.Process.Pid
}

// signal sends sig, if a process runs. ends says that it will end of it.
func (n *node) signal(sig syscall.Signal, ends bool) (exited <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cmd == nil {
		return n.exited
	}
	n.asked = n.asked || ends
	_ = n.cmd.Process.Signal(sig)
	return n.exited
}

// kill ends the process at once and waits for that.
func (n *node) kill() {
	if exited := n.signal(syscall.SIGKILL, true); exited != nil {
		<-exited
	}
}

// stop ends the process politely. One that does not go is a defect, and killed.
func (n *node) stop() {
	exited := n.signal(syscall.SIGTERM, true)
	if exited == nil {
		return
	}
	select {
	case <-exited:
	case <-time.After(stopLimit):
		// SIGQUIT: the log then says where it hangs.
		n.signal(syscall.SIGQUIT, true)
		n.wrong("node %s did not end within %v of SIGTERM; its goroutines are at the end of %s", n.name, stopLimit, n.logFile())
		select {
		case <-exited:
		case <-time.After(stopLimit):
			n.kill()
		}
	}
}

// ports gives TCP ports of 127.0.0.1 below those that the kernel gives to
// connections, so that a node which starts again finds its own free.
type ports struct{ next int }

func (p *ports) take() (int, error) {
	for ; p.next < 30000; p.next++ {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", p.next))
		if err != nil {
			continue
		}
		l.Close()
		p.next++
		return p.next - 1, nil
	}
	return 0, errors.New("no free TCP port below 30000 on 127.0.0.1")
}
