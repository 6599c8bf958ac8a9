package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// nodeArenaBytes is the arena each node is given; it is mover's default, and
// written into the configuration because the memory entries are measured
// against it. A software device has one arena.
const nodeArenaBytes = 512 << 20

// nodeName are the two ends; jobs are submitted at the source.
type nodeName string

const (
	sourceNode      nodeName = "a"
	destinationNode nodeName = "b"
)

// nodePair is Nodes by two `mover run --config` processes on loopback.
// Everything the nodes write besides copies is in dir, of buffers too but
// their memory.
type nodePair struct {
	bin                 string
	dir                 string
	place               *place
	client, receiver    *jobClient // of the source and of the destination
	source, destination *daemon
}

// nodeSetup is what differs between the two configurations.
type nodeSetup struct {
	name        nodeName
	stateDir    string
	apiPort     int
	controlPort int
	fingerprint string
}

func (s nodeSetup) configFile() string { return s.stateDir + ".yaml" }

// startNodePair gives both nodes an identity, writes their configurations with
// each other's fingerprints, starts them and waits until both are ready.
func startNodePair(ctx context.Context, bin string, p *place, state string) (_ *nodePair, err error) {
	dir, err := os.MkdirTemp(state, "nodes-")
	if err != nil {
		return nil, fmt.Errorf("making the nodes' directory: %w", err)
	}
	n := &nodePair{bin: bin, dir: dir, place: p}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.Stop())
		}
	}()
	a, err := n.identify(ctx, sourceNode)
	if err != nil {
		return nil, err
	}
	b, err := n.identify(ctx, destinationNode)
	if err != nil {
		return nil, err
	}
	for _, end := range []struct{ self, other nodeSetup }{{a, b}, {b, a}} {
		if err := writeNodeConfig(end.self, &end.other, p); err != nil {
			return nil, err
		}
	}
	// The destination first: the source dials it.
	if n.destination, err = n.start(ctx, b); err != nil {
		return nil, err
	}
	if n.source, err = n.start(ctx, a); err != nil {
		return nil, err
	}
	if n.client, err = a.newClient(); err != nil {
		return nil, err
	}
	if n.receiver, err = b.newClient(); err != nil {
		return nil, err
	}
	return n, nil
}

// newClient is a client of a running node, with its token.
func (s nodeSetup) newClient() (*jobClient, error) {
	token, err := os.ReadFile(s.tokenFile())
	if err != nil {
		return nil, fmt.Errorf("the token of node %s: %w", s.name, err)
	}
	c := newJobClient(s.apiPort)
	c.token = strings.TrimSpace(string(token))
	return c, nil
}

// identify chooses ports and has mover create a node's identity in its state
// directory, so that its fingerprint can be written into the other's
// configuration before either runs.
func (n *nodePair) identify(ctx context.Context, name nodeName) (nodeSetup, error) {
	s := nodeSetup{name: name, stateDir: filepath.Join(n.dir, string(name))}
	if err := os.Mkdir(s.stateDir, 0o700); err != nil {
		return s, fmt.Errorf("making the state directory of node %s: %w", name, err)
	}
	var err error
	if s.apiPort, err = freePort(); err != nil {
		return s, err
	}
	if s.controlPort, err = freePort(); err != nil {
		return s, err
	}
	if err := writeNodeConfig(s, nil, n.place); err != nil {
		return s, err
	}
	out, err := runClient(ctx, startDeadline, nil, n.bin, "identity", "--fingerprint", "--config", s.configFile())
	if err != nil {
		return s, err
	}
	s.fingerprint = fingerprintPattern.FindString(string(out))
	if s.fingerprint == "" {
		return s, fmt.Errorf("`mover identity` printed no fingerprint: %q", tail(string(out), 512))
	}
	return s, nil
}

var fingerprintPattern = regexp.MustCompile(`sha256:[0-9a-f]{64}`)

// writeNodeConfig writes the configuration of one node. Everything that is
// not said here is mover's default: the benchmark shows what a user gets.
// Without other, the node has no peers and no roots yet.
func writeNodeConfig(self nodeSetup, other *nodeSetup, p *place) error {
	type m = map[string]any
	config := m{
		"node":    m{"name": string(self.name), "state_dir": self.stateDir},
		"log":     m{"level": "warn"},
		"api":     m{"listen": loopback(self.apiPort)},
		"control": m{"listen": []string{loopback(self.controlPort)}},
		"memory":  m{"arena": strconv.Itoa(nodeArenaBytes>>20) + "MiB"},
		// Loopback has no RDMA hardware: software verbs on both sides.
		"devices": m{"providers": []string{"soft"}},
		"soft":    m{"addresses": []string{"127.0.0.1", "127.0.0.2"}},
		// Two nodes share this host's CPUs: one worker each, and pollers that
		// soon give way. On two CPUs that is an eighth of the time.
		"workers": 1,
		"pollers": m{"spin": "5us"},
	}
	if other != nil {
		config["peers"] = m{string(other.name): m{
			"addresses":   []string{loopback(other.controlPort)},
			"fingerprint": other.fingerprint,
		}}
		if self.name == sourceNode {
			config["roots"] = m{"data": m{
				"path": filepath.Dir(p.source()), "read": []string{string(other.name)},
			}}
		} else {
			config["roots"] = m{"incoming": m{
				"path": p.incoming(), "write": []string{string(other.name)},
			}}
		}
	}
	text, err := yaml.Marshal(config)
	if err != nil {
		return fmt.Errorf("configuration of node %s: %w", self.name, err)
	}
	if err := os.WriteFile(self.configFile(), text, 0o600); err != nil {
		return fmt.Errorf("configuration of node %s: %w", self.name, err)
	}
	return nil
}

func loopback(port int) string { return "127.0.0.1:" + strconv.Itoa(port) }

// tokenFile is where a node's first start leaves the token of an administrator
// for the tools of its host.
func (s nodeSetup) tokenFile() string { return filepath.Join(s.stateDir, "token") }

// start runs one node and waits until it is ready.
func (n *nodePair) start(ctx context.Context, s nodeSetup) (*daemon, error) {
	d, err := startDaemon("node "+string(s.name), nil, n.bin, "run", "--config", s.configFile())
	if err != nil {
		return nil, err
	}
	client := newJobClient(s.apiPort)
	defer client.http.CloseIdleConnections()
	if err := d.awaitReady(ctx, client.ready); err != nil {
		return nil, errors.Join(err, d.stop())
	}
	return d, nil
}

func (n *nodePair) Clients() (source, destination *jobClient) { return n.client, n.receiver }

func (n *nodePair) Copy(ctx context.Context, what, out string) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, clientDeadline)
	defer cancel()
	start := time.Now()
	err := n.client.run(ctx, copyJob(what, out))
	took := time.Since(start)
	if err != nil {
		return 0, fmt.Errorf("%w%s", err, n.said())
	}
	return took, nil
}

// copyJob is the job that Copy runs.
func copyJob(what, out string) jobRequest {
	return jobRequest{
		Source:      jobPlace{Path: "data/" + what},
		Destination: jobPlace{Node: string(destinationNode), Path: "incoming/" + out},
		Recursive:   what == treeName,
		Verify:      "crc32c",
		Durable:     true,
	}
}

// said is the end of what the nodes logged, for errors.
func (n *nodePair) said() string {
	var b strings.Builder
	for _, d := range []*daemon{n.source, n.destination} {
		if text := tail(d.output.String(), 1024); text != "" {
			fmt.Fprintf(&b, "\n%s said: %s", d.name, text)
		}
	}
	return b.String()
}

func (n *nodePair) Resident() (source, destination resident, err error) {
	if source, err = readResident(n.source.pid(), nodeArenaBytes); err != nil {
		return resident{}, resident{}, err
	}
	if destination, err = readResident(n.destination.pid(), nodeArenaBytes); err != nil {
		return resident{}, resident{}, err
	}
	return source, destination, nil
}

func (n *nodePair) Stop() error {
	for _, c := range []*jobClient{n.client, n.receiver} {
		if c != nil {
			c.http.CloseIdleConnections()
		}
	}
	return errors.Join(n.source.stop(), n.destination.stop(), os.RemoveAll(n.dir))
}
