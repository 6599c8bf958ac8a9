package image

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

//go:embed init.sh
var initScript []byte

//go:embed start.sh
var startScript []byte

// HostRoot is where a guest has all of the host's files, read-only and as they
// are at the moment: a path of the host with this before it. The same paths
// without it work too, as they were when first used, except under /run, /tmp,
// /var/tmp, /proc, /sys and /dev, which are the guest's own.
const HostRoot = "/run/host"

// Image is what to boot. The files stay valid until the cache is removed.
type Image struct {
	Kernel    string // path of the kernel
	Initramfs string // path of the initramfs
	Version   string // of the kernel package
}

// Config says what to build. All fields are needed.
type Config struct {
	CacheDir string                        // made if it does not exist
	Agent    string                        // path of the agent, a static program for the guest
	Log      func(format string, a ...any) // told of what takes time
}

// ErrUnsupported means that this host cannot have guests of the lab.
var ErrUnsupported = errors.New("the lab needs an amd64 host")

// Build returns the image for the newest kernel package, made now if the cache
// has none of the same ingredients. Processes that share a cache take turns.
func Build(ctx context.Context, cfg Config) (Image, error) {
	if runtime.GOARCH != "amd64" {
		return Image{}, ErrUnsupported
	}
	if err := os.MkdirAll(cfg.CacheDir, 0o755); err != nil {
		return Image{}, fmt.Errorf("make the lab's cache: %w", err)
	}
	unlock, err := lock(filepath.Join(cfg.CacheDir, "lock"))
	if err != nil {
		return Image{}, fmt.Errorf("lock the lab's cache: %w", err)
	}
	defer unlock()
	for _, pattern := range []string{"download-*", "unpack-*", "new-*"} {
		prune(cfg.CacheDir, pattern, 0) // of one that was killed
	}
	k, err := getKernel(ctx, cfg)
	if err != nil {
		return Image{}, fmt.Errorf("the guests' kernel: %w", err)
	}
	content, err := initramfs(k, cfg.Agent)
	if err != nil {
		return Image{}, fmt.Errorf("the guests' initramfs: %w", err)
	}
	// Its own hash is its name: made of the same, it is the same.
	sum := sha256.Sum256(content)
	path := filepath.Join(cfg.CacheDir, "initramfs-"+hex.EncodeToString(sum[:8])+".cpio")
	if _, err := os.Stat(path); err != nil {
		if err := replace(path, content); err != nil {
			return Image{}, fmt.Errorf("the guests' initramfs: %w", err)
		}
	}
	now := time.Now()
	for _, used := range []string{path, k.dir} { // newest, whenever made
		if err := os.Chtimes(used, now, now); err != nil {
			return Image{}, fmt.Errorf("the lab's cache: %w", err)
		}
	}
	prune(cfg.CacheDir, "initramfs-*.cpio", keptImages)
	prune(cfg.CacheDir, "kernel-*", keptKernels)
	prune(cfg.CacheDir, "*.deb", keptDebs)
	return Image{Kernel: filepath.Join(k.dir, "vmlinuz"), Initramfs: path, Version: k.version}, nil
}

// lock takes turns with other processes (flock(2)).
func lock(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	for {
		if err = unix.Flock(int(f.Fd()), unix.LOCK_EX); err != unix.EINTR {
			break
		}
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return func() { _ = f.Close() }, nil
}

// Each of these many stay in the cache: kernels and agents change, and would
// pile up. What a lab boots from, it has open.
const (
	keptImages  = 8
	keptKernels = 4
	keptDebs    = 1
)

// replace writes a file of the cache whole.
func replace(path string, content []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), "new-")
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// prune removes what matches but for the newest. What cannot be removed now is
// another time.
func prune(dir, pattern string, kept int) {
	all, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil {
		return // only for a bad pattern
	}
	age := func(path string) int64 {
		info, err := os.Stat(path)
		if err != nil {
			return 0
		}
		return info.ModTime().UnixNano()
	}
	slices.SortFunc(all, func(a, b string) int { return cmp.Compare(age(b), age(a)) })
	for _, old := range all[min(len(all), kept):] {
		_ = os.RemoveAll(old)
	}
}

// initramfs returns the archive: busybox, modules, agent and scripts.
func initramfs(k kernel, agent string) ([]byte, error) {
	busybox, err := lookTool("busybox")
	if err != nil {
		return nil, err
	}
	program, err := os.ReadFile(busybox)
	if err != nil {
		return nil, err
	}
	if bytes.Contains(program, []byte("/lib64/ld-linux-x86-64.so.2")) {
		return nil, fmt.Errorf("%s is linked dynamically: install busybox-static", busybox)
	}
	agentProgram, err := os.ReadFile(agent)
	if err != nil {
		return nil, err
	}
	list, err := os.ReadFile(filepath.Join(k.dir, "modules/order"))
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	a := &archive{w: &b}
	for _, dir := range []string{"bin", "dev", "lab", "modules"} {
		a.directory(dir)
	}
	// The kernel opens it for the first process before anything is mounted.
	a.character("dev/console", 0o600, 5, 1)
	a.file("bin/busybox", 0o755, program)
	a.file("init", 0o755, initScript)
	a.file("lab/start.sh", 0o644, startScript)
	a.file("lab/agent", 0o755, agentProgram)
	a.file("modules/order", 0o644, list)
	for line := range strings.Lines(string(list)) {
		name, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		module, err := os.ReadFile(filepath.Join(k.dir, "modules", name))
		if err != nil {
			return nil, err
		}
		a.file("modules/"+name, 0o644, module)
	}
	if err := a.close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
