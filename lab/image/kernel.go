package image

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

const (
	metaPackage = "linux-image-amd64" // depends on the newest kernel
	// A mirror may be slow, but not for ever.
	downloadDeadline = 10 * time.Minute
	toolDeadline     = 2 * time.Minute
)

// kernel is an unpacked kernel package.
type kernel struct {
	dir     string // holds vmlinuz and modules/
	version string // of package and kernel, for people
}

// packageID is a Debian package at a version.
type packageID struct{ name, version string }

func (p packageID) String() string { return p.name + "_" + p.version }

// escape is the id as a file name: a version may hold ":" and "~".
func (p packageID) escape() string {
	return strings.NewReplacer(":", "%3a", "~", "%7e", "/", "%2f").Replace(p.String())
}

// newestKernel asks apt's lists, without the network, which kernel package the
// meta package means.
func newestKernel(ctx context.Context) (packageID, error) {
	out, err := run(ctx, toolDeadline, "", "apt-cache", "depends", "--important", metaPackage)
	if err != nil {
		return packageID{}, err
	}
	name, err := parseDepends(string(out))
	if err != nil {
		return packageID{}, err
	}
	out, err = run(ctx, toolDeadline, "", "apt-cache", "show", "--no-all-versions", name)
	if err != nil {
		return packageID{}, err
	}
	version, err := parseVersion(string(out))
	return packageID{name, version}, err
}

func parseDepends(text string) (string, error) {
	for line := range strings.Lines(text) {
		name, ok := strings.CutPrefix(strings.TrimSpace(line), "Depends: linux-image-")
		if ok && name != "" && !strings.ContainsAny(name, " /<>") {
			return "linux-image-" + name, nil
		}
	}
	return "", fmt.Errorf("apt-cache names no kernel that %s depends on", metaPackage)
}

func parseVersion(text string) (string, error) {
	for line := range strings.Lines(text) {
		if version, ok := strings.CutPrefix(line, "Version:"); ok {
			if version = strings.TrimSpace(version); version != "" {
				return version, nil
			}
		}
	}
	return "", errors.New("apt-cache shows a kernel package without a version")
}

// getKernel returns the newest kernel that apt knows, from the cache if it is
// there. Without apt's lists, or the network, a kernel in the cache will do.
func getKernel(ctx context.Context, cfg Config) (kernel, error) {
	id, err := newestKernel(ctx)
	if err != nil {
		if k, ok := anyKernel(cfg.CacheDir); ok {
			cfg.Log("apt does not say which kernel is newest; using %s from the cache", k.version)
			return k, nil
		}
		// A fresh machine has no lists.
		if uerr := updateLists(ctx, cfg); uerr != nil {
			return kernel{}, errors.Join(err, uerr)
		}
		if id, err = newestKernel(ctx); err != nil {
			return kernel{}, err
		}
	}
	k := kernel{dir: kernelDir(cfg.CacheDir, id), version: id.String()}
	if _, err := os.Stat(k.dir); err == nil {
		return k, nil
	}
	deb, err := download(ctx, cfg, id)
	if err != nil {
		// The list is older than the mirror, perhaps.
		if uerr := updateLists(ctx, cfg); uerr != nil {
			return kernel{}, errors.Join(err, uerr)
		}
		if id, err = newestKernel(ctx); err != nil {
			return kernel{}, err
		}
		if deb, err = download(ctx, cfg, id); err != nil {
			return kernel{}, fmt.Errorf("%w; is the network reachable?", err)
		}
		k = kernel{dir: kernelDir(cfg.CacheDir, id), version: id.String()}
	}
	return k, unpack(ctx, cfg, deb, k)
}

// kernelDir has the module list's hash too: only what it needs is kept.
func kernelDir(cache string, id packageID) string {
	sum := sha256.Sum256([]byte(modulesText))
	return filepath.Join(cache, "kernel-"+id.escape()+"-"+hex.EncodeToString(sum[:4]))
}

// anyKernel is the one unpacked last.
func anyKernel(cache string) (kernel, bool) {
	sum := sha256.Sum256([]byte(modulesText))
	suffix := "-" + hex.EncodeToString(sum[:4])
	found, err := filepath.Glob(filepath.Join(cache, "kernel-*"+suffix))
	if err != nil {
		return kernel{}, false
	}
	var newest kernel
	var when time.Time
	for _, dir := range found {
		info, err := os.Stat(dir)
		if err == nil && info.ModTime().After(when) {
			id := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(dir), "kernel-"), suffix)
			newest, when = kernel{dir, id}, info.ModTime()
		}
	}
	return newest, newest.dir != ""
}

// download returns the package's file in the cache. apt checks its hash.
func download(ctx context.Context, cfg Config, id packageID) (string, error) {
	deb := filepath.Join(cfg.CacheDir, id.escape()+"_amd64.deb")
	if _, err := os.Stat(deb); err == nil {
		return deb, nil
	}
	cfg.Log("downloading %s", id)
	dir, err := os.MkdirTemp(cfg.CacheDir, "download-")
	if err != nil {
		return "", fmt.Errorf("download %s: %w", id, err)
	}
	defer os.RemoveAll(dir)
	if _, err := run(ctx, downloadDeadline, dir, "apt-get", "-q", "download", id.name+"="+id.version); err != nil {
		return "", err
	}
	got, err := filepath.Glob(filepath.Join(dir, "*.deb"))
	if err != nil || len(got) != 1 {
		return "", fmt.Errorf("download %s: apt-get left %d files (%v)", id, len(got), err)
	}
	if err := os.Rename(got[0], deb); err != nil {
		return "", fmt.Errorf("download %s: %w", id, err)
	}
	return deb, nil
}

func updateLists(ctx context.Context, cfg Config) error {
	cfg.Log("fetching apt's package lists")
	args := []string{"apt-get", "-q", "update"}
	if os.Geteuid() != 0 {
		args = append([]string{"sudo", "-n"}, args...)
	}
	if _, err := run(ctx, downloadDeadline, "", args...); err != nil {
		return fmt.Errorf("%w; run `apt-get update` as root, then try again", err)
	}
	return nil
}

// unpack makes k.dir from the package's file: vmlinuz, modules.dep and what
// it takes to load the modules wanted, 10 MB of 400.
func unpack(ctx context.Context, cfg Config, deb string, k kernel) error {
	cfg.Log("unpacking %s", k.version)
	dir, err := os.MkdirTemp(cfg.CacheDir, "unpack-")
	if err != nil {
		return fmt.Errorf("unpack %s: %w", deb, err)
	}
	defer os.RemoveAll(dir)
	tree := filepath.Join(dir, "tree")
	if _, err := run(ctx, toolDeadline, "", "dpkg-deb", "-x", deb, tree); err != nil {
		return err
	}
	versions, err := os.ReadDir(filepath.Join(tree, "lib/modules"))
	if err != nil || len(versions) != 1 {
		return fmt.Errorf("%s does not hold the modules of one kernel (%v)", deb, err)
	}
	version := versions[0].Name()
	if _, err := run(ctx, toolDeadline, "", "depmod", "-b", tree, version); err != nil {
		return err
	}
	from := filepath.Join(tree, "lib/modules", version)
	dep, err := os.ReadFile(filepath.Join(from, "modules.dep"))
	if err != nil {
		return fmt.Errorf("unpack %s: %w", deb, err)
	}
	builtin, err := os.ReadFile(filepath.Join(from, "modules.builtin"))
	if err != nil {
		return fmt.Errorf("unpack %s: %w", deb, err)
	}
	order, err := loadOrder(parseWanted(modulesText), string(dep), string(builtin))
	if err != nil {
		return fmt.Errorf("%s: %w", k.version, err)
	}
	kept := filepath.Join(dir, "kept")
	if err := keep(kept, from, filepath.Join(tree, "boot/vmlinuz-"+version), order); err != nil {
		return fmt.Errorf("unpack %s: %w", deb, err)
	}
	// The last step: a directory of this name is whole.
	if err := os.Rename(kept, k.dir); err != nil {
		return fmt.Errorf("unpack %s: %w", deb, err)
	}
	return nil
}

// keep moves the kernel and the modules in order to a new directory.
func keep(dir, modules, vmlinuz string, order []wanted) error {
	if err := os.MkdirAll(filepath.Join(dir, "modules"), 0o755); err != nil {
		return err
	}
	list, err := orderFile(order)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "modules/order"), list, 0o644); err != nil {
		return err
	}
	for _, m := range order {
		if err := os.Rename(filepath.Join(modules, m.name), filepath.Join(dir, "modules", filepath.Base(m.name))); err != nil {
			return err
		}
	}
	return os.Rename(vmlinuz, filepath.Join(dir, "vmlinuz"))
}

// run runs a tool of the host to its end and returns its standard output.
func run(ctx context.Context, deadline time.Duration, dir string, args ...string) ([]byte, error) {
	path, err := lookTool(args[0])
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args[1:]...)
	cmd.Dir = dir
	cmd.WaitDelay = 5 * time.Second
	cmd.Env = append(os.Environ(), "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return stdout.Bytes(), nil
}

// lookTool finds a program of the host, also where only root's PATH leads.
func lookTool(name string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	for _, dir := range []string{"/usr/sbin", "/sbin"} {
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s is not installed: install the packages in lab/packages.txt (`make lab` does), on Debian or one like it", name)
}
