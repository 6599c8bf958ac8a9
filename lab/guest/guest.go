package guest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"mover/lab/image"
	"mover/lab/remote"
)

// Config says what to boot.
type Config struct {
	Name    string // for QEMU's process name and messages
	Index   int    // 0 or 1: which end of the wires
	Image   image.Image
	Rails   []*os.File // an end of a wire each; rail i is on NUMA node i
	Console string     // path of the file that gets the console
	// MemoryMiB is for both NUMA nodes together; it is not taken before the
	// guest touches it.
	MemoryMiB int
	KVM       bool          // use the host's virtualization, else emulate
	Lifetime  time.Duration // the guest is killed after this long
}

// stopGrace is how long a guest has to switch itself off.
const stopGrace = 15 * time.Second

// Guest is a running guest. Safe for concurrent use.
type Guest struct {
	name    string
	console string
	cmd     *exec.Cmd
	stderr  *bytes.Buffer // of QEMU; valid after exited
	agent   *remote.Client
	monitor *qmp
	hello   remote.Hello
	exited  chan struct{}
	err     error // how QEMU ended; valid after exited
	timer   *time.Timer
	killed  sync.Once
}

// Boot starts a guest and returns once its agent answers. ctx bounds the boot
// alone. The guest is killed with this process.
func Boot(ctx context.Context, cfg Config) (*Guest, error) {
	path, err := exec.LookPath("qemu-system-x86_64")
	if err != nil {
		return nil, fmt.Errorf("qemu-system-x86_64 is not installed: install the packages in lab/packages.txt (`make lab` does)")
	}
	agentConn, agentFile, err := channel()
	if err != nil {
		return nil, fmt.Errorf("guest %s: %w", cfg.Name, err)
	}
	defer agentFile.Close()
	qmpConn, qmpFile, err := channel()
	if err != nil {
		_ = agentConn.Close()
		return nil, fmt.Errorf("guest %s: %w", cfg.Name, err)
	}
	defer qmpFile.Close()

	g := &Guest{name: cfg.Name, console: cfg.Console, stderr: &bytes.Buffer{}, exited: make(chan struct{}),
		agent: remote.NewClient(agentConn), monitor: newQMP(qmpConn)}
	g.cmd = exec.Command(path, cfg.arguments()...)
	g.cmd.ExtraFiles = append([]*os.File{agentFile, qmpFile}, cfg.Rails...)
	g.cmd.Stdout, g.cmd.Stderr = g.stderr, g.stderr
	// Pdeathsig: no guest outlives the lab. It follows the thread that forks,
	// which ends only if a goroutine locked to it does; nobody locks here.
	g.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGKILL}
	if err := g.cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start guest %s: %w", cfg.Name, err), agentConn.Close(), qmpConn.Close())
	}
	go g.reap(agentConn, qmpConn)
	g.timer = time.AfterFunc(cfg.Lifetime, g.kill)
	if g.hello, err = g.agent.Hello(ctx); err != nil {
		g.kill()
		<-g.exited
		return nil, fmt.Errorf("boot guest %s: %w%s", cfg.Name, err, g.said())
	}
	return g, nil
}

// reap waits for QEMU and ends what depends on it.
func (g *Guest) reap(conns ...net.Conn) {
	g.err = g.cmd.Wait()
	for _, c := range conns {
		_ = c.Close()
	}
	close(g.exited)
}

func (g *Guest) kill() {
	g.killed.Do(func() {
		_ = g.cmd.Process.Kill() // an error means it has ended
	})
}

// said is what QEMU printed and the end of the console, for errors.
func (g *Guest) said() string {
	var b strings.Builder
	if text := bytes.TrimSpace(g.stderr.Bytes()); len(text) > 0 {
		fmt.Fprintf(&b, "\nQEMU says: %s", text)
	}
	console, err := os.ReadFile(g.console)
	if err != nil {
		return b.String()
	}
	text := strings.TrimSpace(strings.ReplaceAll(string(console), "\r", ""))
	if text != "" {
		fmt.Fprintf(&b, "\nthe end of %s: %s", g.console, text[max(0, len(text)-2000):])
	}
	return b.String()
}

// Name is the guest's name.
func (g *Guest) Name() string { return g.name }

// Kernel is the release of the guest's kernel.
func (g *Guest) Kernel() string { return g.hello.Kernel }

// Remote runs commands in the guest.
func (g *Guest) Remote() *remote.Client { return g.agent }

// Exited is closed when the guest has ended, wanted or not.
func (g *Guest) Exited() <-chan struct{} { return g.exited }

// SetLink plugs a rail's cable in or out at this end: the guest's card loses
// its carrier, and nothing passes in either direction. The other end keeps its
// carrier, as behind a switch.
func (g *Guest) SetLink(ctx context.Context, rail int, up bool) error {
	arguments := struct {
		Name string `json:"name"`
		Up   bool   `json:"up"`
	}{railID(rail), up}
	if _, err := g.monitor.execute(ctx, "set_link", arguments); err != nil {
		return fmt.Errorf("guest %s, rail %d: %w", g.name, rail, err)
	}
	return nil
}

// Close ends the guest: it switches itself off when its agent's connection
// ends, else it is killed, which is an error. Calling it again does nothing.
func (g *Guest) Close() error {
	select {
	case <-g.exited:
		g.timer.Stop()
		return nil
	default:
	}
	_ = g.agent.Close() // it may have ended by itself
	grace := time.NewTimer(stopGrace)
	defer grace.Stop()
	defer g.timer.Stop()
	select {
	case <-g.exited:
		if g.err != nil {
			return fmt.Errorf("guest %s: QEMU: %w%s", g.name, g.err, g.said())
		}
		return nil
	case <-grace.C:
		g.kill()
		<-g.exited
		return fmt.Errorf("guest %s did not switch itself off within %v and was killed; see %s", g.name, stopGrace, g.console)
	}
}
