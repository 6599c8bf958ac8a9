package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
)

// gridftpSettings: the client sends (two processes, as with two nodes) or asks
// the server for a transfer between two of its own sessions; one to four data
// connections in extended block mode (-fast, implied by -p), with the default
// block of 256 KiB or the larger ones that do well on loopback. Which is best
// depends on the file system.
var gridftpSettings = []struct {
	third bool
	args  []string
}{
	{false, []string{"-fast", "-p", "1"}},
	{false, []string{"-fast", "-bs", "4M"}},
	{false, []string{"-fast", "-p", "2", "-bs", "1M"}},
	{false, []string{"-fast", "-p", "4", "-bs", "1M"}},
	{true, []string{"-fast", "-bs", "4M"}},
	{true, []string{"-fast", "-p", "2", "-bs", "1M"}},
	{true, []string{"-fast", "-p", "4", "-bs", "1M"}},
}

// gridFTP is a globus-gridftp-server on loopback with a globus-url-copy a copy.
type gridFTP struct {
	client string
	place  *place
	dir    string // configuration, log, the client's HOME
	url    string
	server *daemon
}

// startGridFTP starts the server, anonymous and on loopback only. The caller
// must stop it.
func startGridFTP(ctx context.Context, p *place) (*gridFTP, error) {
	server, err := lookTool("globus-gridftp-server", "globus-gridftp-server-progs")
	if err != nil {
		return nil, err
	}
	client, err := lookTool("globus-url-copy", "globus-gass-copy-progs")
	if err != nil {
		return nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "mover-bench-gridftp-")
	if err != nil {
		return nil, fmt.Errorf("GridFTP configuration: %w", err)
	}
	g := &gridFTP{client: client, place: p, dir: dir, url: "ftp://127.0.0.1:" + strconv.Itoa(port)}
	config := filepath.Join(dir, "gridftp.conf")
	err = g.prepare(config, port)
	if err == nil {
		g.server, err = startDaemon("globus-gridftp-server", []string{"HOME=" + dir}, server, "-c", config)
	}
	if err == nil {
		err = g.server.awaitReady(ctx, accepting("127.0.0.1:"+strconv.Itoa(port)))
	}
	if err != nil {
		return nil, errors.Join(err, g.stop())
	}
	return g, nil
}

// prepare writes the configuration. The server refuses to serve anonymous
// users as root, so on a root run it serves as nobody, who gets the peers'
// folder.
func (g *gridFTP) prepare(config string, port int) error {
	servesAs := ""
	if os.Geteuid() == 0 {
		servesAs = "nobody"
		nobody, err := user.Lookup(servesAs)
		if err != nil {
			return fmt.Errorf("the GridFTP server needs the user nobody when started by root: %w", err)
		}
		uid, err := strconv.Atoi(nobody.Uid)
		if err != nil {
			return fmt.Errorf("uid of nobody: %w", err)
		}
		if err := os.Chown(g.place.peerDir(), uid, -1); err != nil {
			return fmt.Errorf("GridFTP configuration: %w", err)
		}
	}
	if err := os.WriteFile(config, []byte(gridftpConf(port, servesAs, filepath.Join(g.dir, "gridftp.log"))), 0o644); err != nil {
		return fmt.Errorf("GridFTP configuration: %w", err)
	}
	return nil
}

// gridftpConf is the server's configuration: one "option value" a line, the
// options as `globus-gridftp-server -help` names them.
func gridftpConf(port int, servesAs, log string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "port %d\ncontrol_interface 127.0.0.1\ndata_interface 127.0.0.1\n", port)
	fmt.Fprintf(&b, "allow_anonymous 1\nanonymous_names_allowed *\nlog_level ERROR,WARN\nlog_single %s\n", log)
	if servesAs != "" {
		fmt.Fprintf(&b, "anonymous_user %s\n", servesAs)
	}
	return b.String()
}

func (g *gridFTP) settings() int { return len(gridftpSettings) }

func (g *gridFTP) describe(setting int) string {
	s := "globus-url-copy " + strings.Join(gridftpSettings[setting].args, " ")
	if gridftpSettings[setting].third {
		s += " (third party)"
	}
	if g.place.durable() {
		s += " + fsync"
	}
	return s
}

func (g *gridFTP) copy(ctx context.Context, setting int, dst string) error {
	s := gridftpSettings[setting]
	// Anonymous sessions have no credentials to authenticate data channels
	// with, which a third-party transfer would ask for.
	args := append([]string{"-q", "-nodcau"}, s.args...)
	from := "file://" + g.place.source()
	if s.third {
		from = g.url + g.place.source()
	}
	args = append(args, from, g.url+dst)
	if _, err := runClient(ctx, clientDeadline, []string{"HOME=" + g.dir}, g.client, args...); err != nil {
		return err
	}
	if g.place.durable() {
		return makeDurable(dst)
	}
	return nil
}

func (g *gridFTP) stop() error {
	return errors.Join(g.server.stop(), os.RemoveAll(g.dir))
}
