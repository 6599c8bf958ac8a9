package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// rsyncSettings: to and from a daemon, each into a temporary file that is
// renamed (rsync's way, and mover's) and in place. --whole-file always: the
// destination does not exist, so the delta algorithm has nothing to work
// with. No compression: the data is random. Of a tree it keeps what mover keeps
// by default: links, permissions and times.
var rsyncSettings = []struct {
	pull bool
	args []string
}{
	{false, []string{"--whole-file"}},
	{true, []string{"--whole-file"}},
	{false, []string{"--whole-file", "--inplace"}},
	{true, []string{"--whole-file", "--inplace"}},
}

// rsync is an rsync daemon on loopback with a client a copy.
type rsync struct {
	path   string
	place  *place
	what   string // sourceName or treeName
	dir    string // configuration, log, pid file
	url    string
	daemon *daemon
}

// startRsync starts the daemon with a configuration of its own. The caller
// must stop it.
func startRsync(ctx context.Context, p *place, what string) (*rsync, error) {
	path, err := lookTool("rsync", "rsync")
	if err != nil {
		return nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "mover-bench-rsync-")
	if err != nil {
		return nil, fmt.Errorf("rsync configuration: %w", err)
	}
	r := &rsync{path: path, place: p, what: what, dir: dir, url: "rsync://127.0.0.1:" + strconv.Itoa(port)}
	config := filepath.Join(dir, "rsyncd.conf")
	if err := os.WriteFile(config, []byte(rsyncdConf(p, dir, os.Geteuid() == 0)), 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("rsync configuration: %w", err), r.stop())
	}
	r.daemon, err = startDaemon("rsync daemon", nil, path, "--daemon", "--no-detach",
		"--address=127.0.0.1", "--port="+strconv.Itoa(port), "--config="+config)
	if err != nil {
		return nil, errors.Join(err, r.stop())
	}
	if err := r.daemon.awaitReady(ctx, accepting("127.0.0.1:"+strconv.Itoa(port))); err != nil {
		return nil, errors.Join(err, r.stop())
	}
	return r, nil
}

// rsyncdConf is the daemon's configuration, see rsyncd.conf(5). As root it
// stays root, because a chroot or another user would be work mover's node
// does not do either.
func rsyncdConf(p *place, dir string, root bool) string {
	var b strings.Builder
	fmt.Fprintf(&b, "use chroot = no\nreverse lookup = no\nlog file = %s\n", filepath.Join(dir, "rsyncd.log"))
	if root {
		b.WriteString("uid = 0\ngid = 0\n")
	}
	fmt.Fprintf(&b, "[data]\npath = %s\nread only = yes\n", filepath.Dir(p.source()))
	fmt.Fprintf(&b, "[peer]\npath = %s\nread only = no\n", p.peerDir())
	return b.String()
}

func (r *rsync) settings() int { return len(rsyncSettings) }

func (r *rsync) describe(setting int) string {
	s := rsyncSettings[setting]
	direction := "push"
	if s.pull {
		direction = "pull"
	}
	return "rsync " + strings.Join(r.args(setting), " ") + " (" + direction + ")"
}

func (r *rsync) args(setting int) []string {
	args := append([]string{}, rsyncSettings[setting].args...)
	if r.what == treeName {
		args = append(args, "-rlpt")
	}
	if r.place.durable() {
		args = append(args, "--fsync")
	}
	return args
}

func (r *rsync) copy(ctx context.Context, setting int, dst string) error {
	from, to := filepath.Join(r.place.dir, "data", r.what), r.url+"/peer/"+filepath.Base(dst)
	if rsyncSettings[setting].pull {
		from, to = r.url+"/data/"+r.what, dst
	}
	if r.what == treeName {
		from += "/" // what is in it, into dst
	}
	_, err := runClient(ctx, clientDeadline, nil, r.path, append(r.args(setting), from, to)...)
	return err
}

func (r *rsync) stop() error {
	return errors.Join(r.daemon.stop(), os.RemoveAll(r.dir))
}
