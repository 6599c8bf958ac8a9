package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"mover/job"
	"mover/node/config"
)

// checkSoft sees whether the addresses of software verbs are this host's.
func checkSoft(ctx context.Context, cfg *config.Config) []finding {
	if !slices.Contains(cfg.Devices.Providers, "soft") && !slices.Contains(cfg.Devices.Providers, "auto") {
		return nil
	}
	var out []finding
	for _, a := range cfg.Soft.Addresses {
		if err := bind(ctx, net.JoinHostPort(a, "0")); err != nil {
			out = append(out, fail("soft", "list addresses of this host in soft.addresses (see `ip addr`)", "%s: %v", a, err))
		} else {
			out = append(out, ok("soft", "%s can be used", a))
		}
	}
	return out
}

func bind(ctx context.Context, address string) error {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return l.Close()
}

// checkFiles looks at the state directory, the certificate files and the roots.
func checkFiles(cfg *config.Config) []finding {
	out := append([]finding{checkStateDir(cfg.Node.StateDir)}, checkStateDisk(cfg.Node.StateDir)...)
	out = append(out, checkSQLite())
	for _, f := range []struct{ setting, path string }{
		{"api.tls_cert", cfg.API.TLSCert}, {"api.tls_key", cfg.API.TLSKey}, {"control.ca", cfg.Control.CA},
	} {
		if f.path == "" {
			continue
		}
		if _, err := os.ReadFile(f.path); err != nil {
			out = append(out, fail(f.setting, "put the file there, readable by the user mover runs as", "%v", err))
		} else {
			if f.setting == "api.tls_key" { // of the others more is said below
				out = append(out, ok(f.setting, "%s can be read", f.path))
			}
		}
	}
	names := make([]string, 0, len(cfg.Roots))
	for name := range cfg.Roots {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		out = append(out, checkRoot(name, cfg.Roots[name]))
	}
	out = append(out, checkBufferMounts(cfg)...)
	return append(out, checkCertificates(cfg, time.Now())...)
}

func checkStateDir(dir string) finding {
	const subject = "state"
	info, err := os.Stat(dir)
	existing := dir
	for errors.Is(err, fs.ErrNotExist) && existing != "/" {
		existing = filepath.Dir(existing)
		_, err = os.Stat(existing)
	}
	if err != nil {
		return fail(subject, "choose another node.state_dir, or give this user access", "%v", err)
	}
	if info != nil && !info.IsDir() {
		return fail(subject, "choose another node.state_dir", "%s is not a directory", dir)
	}
	var st unix.Statfs_t
	if err := unix.Statfs(existing, &st); err == nil {
		if name, network := job.NetworkFileSystem(uint32(st.Type)); network {
			return fail(subject, "choose a node.state_dir on a local disk", "%s is on %s, which can lose locks and writes", dir, name)
		}
	}
	if err := unix.Access(existing, unix.W_OK|unix.X_OK); err != nil {
		return fail(subject, "run as the user mover runs as, choose another node.state_dir, or: install -d -m 0700 -o USER "+dir, "%s cannot be written: %v", existing, err)
	}
	if info == nil {
		return ok(subject, "%s will be created at the first start", dir)
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return warn(subject, "chmod 0700 "+dir, "%s has mode %#o: others on this host can see what is in it", dir, mode)
	}
	return ok(subject, "%s", dir)
}

func checkRoot(name string, r config.Root) finding {
	subject := "root " + name
	info, err := os.Stat(r.Path)
	if err != nil {
		return fail(subject, "create the directory, or change roots."+name+".path", "%v", err)
	}
	if !info.IsDir() {
		return fail(subject, "change roots."+name+".path", "%s is not a directory", r.Path)
	}
	// Reading is needed to list; writing also if somebody may write here.
	need, word := uint32(unix.R_OK|unix.X_OK), "read"
	if len(r.Write) > 0 {
		need, word = need|unix.W_OK, "written"
	}
	if err := unix.Access(r.Path, need); err != nil {
		return fail(subject, "give the user mover runs as access", "%s cannot be %s: %v", r.Path, word, err)
	}
	var st unix.Statfs_t
	if err := unix.Statfs(r.Path, &st); err != nil {
		return fail(subject, "look at the file system", "%s: %v", r.Path, err)
	}
	free := int64(st.Bavail) * st.Bsize
	if free < int64(r.MinFree) {
		return warn(subject, "free space, or lower min_free", "%s has %v free, less than min_free (%v): nothing can arrive", r.Path, roundedMiB(free), r.MinFree)
	}
	return ok(subject, "%s, %v free, read by [%s], written by [%s]", r.Path, roundedMiB(free), strings.Join(r.Read, " "), strings.Join(r.Write, " "))
}

// checkPorts sees whether the node could listen, or does already.
func checkPorts(ctx context.Context, cfg *config.Config) []finding {
	running := answersHealth(ctx, cfg)
	var out []finding
	port := func(setting, address string) {
		err := bind(ctx, address)
		switch {
		case err == nil:
			out = append(out, ok(setting, "%s is free", address))
		case errors.Is(err, syscall.EADDRINUSE) && running:
			out = append(out, ok(setting, "%s is in use: a node is running here", address))
		case errors.Is(err, syscall.EADDRINUSE):
			out = append(out, fail(setting, "stop what uses it (see `ss -ltnp`), or choose another port", "%s is in use", address))
		default:
			out = append(out, fail(setting, "use an address of this host (see `ip addr`)", "%v", err))
		}
	}
	port("api.listen", cfg.API.Listen)
	out = append(out, checkSocket(cfg)...)
	for _, a := range cfg.Control.Listen {
		port("control.listen", a)
	}
	return out
}

func answersHealth(ctx context.Context, cfg *config.Config) bool {
	if cfg.API.TLSCert != "" {
		return false // it would take the CA to ask
	}
	ctx, cancel := context.WithTimeout(ctx, checkWithin)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+cfg.API.Listen+"/healthz", nil)
	if err != nil {
		return false
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return false
	}
	response.Body.Close()
	return response.StatusCode == http.StatusOK
}

// configOrDefault is loadConfig, but for commands that are useful before there
// is a configuration. from says where it came from.
func configOrDefault(c flagged) (cfg *config.Config, from string, err error) {
	file := c.String("config")
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) && !c.IsSet("config") {
		cfg, err := config.Parse("defaults", nil)
		if err != nil {
			return nil, "", &exitError{code: exitUsage, err: err}
		}
		return cfg, fmt.Sprintf("the defaults: there is no %s, and no --config", file), nil
	}
	if cfg, err = config.Load(file); err != nil {
		return nil, "", &exitError{code: exitUsage, err: err}
	}
	return cfg, file, nil
}

// flagged is the part of *cli.Context that looks up flags.
type flagged interface {
	String(name string) string
	IsSet(name string) bool
}
