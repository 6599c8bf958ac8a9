package buffer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"mover/numa"
	"mover/reason"
)

// Config is what a Registry needs.
type Config struct {
	// Dir is the node's state directory; records are kept in Dir/buffers, which
	// is made. The caller holds the directory's lock: one process at a time.
	Dir string
	// Node is the node's name: part of the files' names.
	Node   string
	Logger *slog.Logger // nil is no log
	Limits Limits

	procRoot, sysRoot, shmDir string // "" is /proc, /sys, /dev/shm
	now                       func() time.Time
}

// Limits bound a registry. 0 is the default.
type Limits struct {
	MaxBuffers int   // default 1024, each one descriptor and one mapping
	MaxBytes   int64 // of all buffers together; default: no limit but memory
	// MaxBytesPerOwner is the quota of each Spec.Owner; default: no limit.
	MaxBytesPerOwner int64
	MaxLeases        int // of one buffer at a time; default 1024
}

// Registry is the node's buffers. Any goroutine may call its methods.
type Registry struct {
	node                      string
	limits                    Limits
	log                       *slog.Logger
	store                     *store
	boot                      string
	procRoot, sysRoot, shmDir string
	now                       func() time.Time

	mu      sync.Mutex
	closed  bool
	buffers map[string]*buffer
}

// buffer is one buffer. Whoever holds its turn is alone in changing the file,
// the mapping and the record, in memory and on disk; memory is changed under
// the registry's mu, too, so that either is enough to read.
type buffer struct {
	turn chan struct{} // a lock that gives up when a context ends; one place

	state   state
	rec     record
	file    *file         // of a ready one
	memory  *numa.FileMap // of a ready one
	problem error         // of an unavailable one

	// The rest is guarded by the registry's mu alone.
	leases   leaseTable
	writers  int           // leases that are dirty
	deleting int           // Deletes that wait: no new leases
	idle     chan struct{} // closed when the last lease goes; nil when no Delete waits
}

type state uint8

const (
	making      state = iota // by Create or Open; nobody sees it yet
	ready                    // mapped
	unavailable              // defined, without memory
	gone                     // deleted, or never made; not in the map
)

func newBuffer() *buffer { return &buffer{turn: make(chan struct{}, 1)} }

// take waits for the buffer's turn.
func (b *buffer) take(ctx context.Context) error {
	select {
	case b.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (b *buffer) give() { <-b.turn }

// Open restores the buffers whose records are in cfg.Dir, which takes as long
// as populating their memory: about 0.1 to 0.3 s a GiB for what has to be made
// again, far less for what is there. Problems are of single buffers and for the
// log; the error is ErrBadState, a bad configuration, or ctx's.
func Open(ctx context.Context, cfg Config) (*Registry, []Problem, error) {
	if !validName(cfg.Node) {
		return nil, nil, fmt.Errorf("buffers: %.80q cannot be a node's name", cfg.Node)
	}
	r := &Registry{node: cfg.Node, limits: cfg.Limits, log: cfg.Logger, procRoot: cfg.procRoot, sysRoot: cfg.sysRoot,
		shmDir: cfg.shmDir, now: cfg.now, buffers: map[string]*buffer{}}
	if r.limits.MaxBuffers == 0 {
		r.limits.MaxBuffers = 1024
	}
	if r.limits.MaxBytes == 0 {
		r.limits.MaxBytes = MaxBytes
	}
	if r.limits.MaxBytesPerOwner == 0 {
		r.limits.MaxBytesPerOwner = MaxBytes
	}
	if r.limits.MaxLeases == 0 {
		r.limits.MaxLeases = 1024
	}
	if l := r.limits; l.MaxBuffers < 0 || l.MaxBytes < 0 || l.MaxBytesPerOwner < 0 || l.MaxLeases < 0 {
		return nil, nil, errors.New("buffers: limits must not be negative")
	}
	if r.log == nil {
		r.log = slog.New(slog.DiscardHandler)
	}
	if r.procRoot == "" {
		r.procRoot = "/proc"
	}
	if r.sysRoot == "" {
		r.sysRoot = "/sys"
	}
	if r.shmDir == "" {
		r.shmDir = "/dev/shm"
	}
	if r.now == nil {
		r.now = time.Now
	}
	// Without it, a file is told by its inode alone.
	boot, err := os.ReadFile(r.procRoot + "/sys/kernel/random/boot_id")
	if err != nil {
		r.log.Warn("the host's boot_id is not known; buffers are told by their inodes alone", "error", err)
	}
	r.boot = strings.TrimSpace(string(boot))
	if r.store, err = openStore(cfg.Dir); err != nil {
		return nil, nil, err
	}
	problems, err := r.restore(ctx)
	if err != nil {
		return nil, nil, errors.Join(err, r.Close())
	}
	return r, problems, nil
}

// path is the file of a buffer in a directory. "host.a"'s buffer "b" and
// "host"'s "a.b" share one; whoever comes second gets ErrForeign.
func (r *Registry) path(dir, name string) string { return dir + "/mover." + r.node + "." + name }

// find returns a buffer that others may see; mu is held.
func (r *Registry) find(name string) (*buffer, error) {
	b := r.buffers[name]
	if b == nil || b.state == making {
		return nil, fmt.Errorf("%w on node %s: %.80q; create it there, or check the name", ErrNotFound, r.node, name)
	}
	return b, nil
}

// Get describes a buffer; ErrNotFound, which has no reason code: which one it
// means depends on the side.
func (r *Registry) Get(name string) (Info, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b, err := r.find(name)
	if err != nil {
		return Info{}, err
	}
	return b.info(), nil
}

// List describes all buffers, by name.
func (r *Registry) List() []Info {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]Info, 0, len(r.buffers))
	for _, b := range r.buffers {
		if b.state != making {
			all = append(all, b.info())
		}
	}
	slices.SortFunc(all, func(a, b Info) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// info describes b; mu is held.
func (b *buffer) info() Info {
	i := Info{Name: b.rec.Name, Path: b.rec.Path, Bytes: b.rec.Bytes, MappedBytes: b.rec.FileBytes, PageSize: b.rec.PageSize,
		PageReason: b.rec.Reason, NUMAWanted: b.rec.NUMANode, NUMANode: -1, Generation: b.rec.Generation, Mode: b.rec.Mode,
		Group: b.rec.Group, Owner: b.rec.Owner, Read: slices.Clone(b.rec.Read), Write: slices.Clone(b.rec.Write),
		CreatedAt: b.rec.CreatedAt, Leases: b.leases.list()}
	switch b.state {
	case ready:
		report := b.memory.Report()
		i.PageBytes, i.NUMANode = report.PageBytes, report.NodeGot
		i.PageReason = strings.Join(append([]string{i.PageReason}, report.Steps...), "; ")
		if err := b.file.whole(); err != nil {
			i.Problem = err.Error()
		}
	case unavailable:
		i.Problem = b.problem.Error()
	}
	return i
}

// locked does change under mu.
func (r *Registry) locked(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
}

// Readable reports whether a job may take a buffer's content to node, by the
// buffer's Spec.Read. The reason of a no is SOURCE_NOT_FOUND or NOT_AUTHORIZED.
func (r *Registry) Readable(name, node string) error {
	return r.allowed(name, node, "read", reason.SourceNotFound, func(i Info) []string { return i.Read })
}

// Writable reports whether a job may bring content from node into a buffer, by
// the buffer's Spec.Write. The reason of a no is DEST_NOT_FOUND or
// NOT_AUTHORIZED.
func (r *Registry) Writable(name, node string) error {
	return r.allowed(name, node, "write", reason.DestNotFound, func(i Info) []string { return i.Write })
}

func (r *Registry) allowed(name, node, what string, missing reason.Code, list func(Info) []string) error {
	info, err := r.Get(name)
	if err != nil {
		return reason.New(missing, "%w; `mover buffers ls` lists them", err)
	}
	if names := list(info); !slices.Contains(names, node) && !slices.Contains(names, "*") {
		return reason.New(reason.NotAuthorized, "buffer %s does not list node %s under %s; make it again with %s: [%s]", name, node, what, what, node)
	}
	return nil
}

// Close unmaps every buffer that is not leased; files and records stay for the
// next Open. Nothing can be created or leased from then on. While leases are
// out their buffers stay mapped, and the error wraps ErrLeased and names one:
// call it again when they are released.
func (r *Registry) Close() error {
	r.mu.Lock()
	r.closed = true
	all := make([]*buffer, 0, len(r.buffers))
	for _, b := range r.buffers {
		all = append(all, b)
	}
	r.mu.Unlock()
	var errs []error
	for _, b := range all {
		errs = append(errs, r.closeBuffer(b))
	}
	return errors.Join(errs...)
}

func (r *Registry) closeBuffer(b *buffer) error {
	_ = b.take(context.Background()) // without an end, it does not fail
	defer b.give()
	r.mu.Lock()
	if held := b.leases.list(); len(held) > 0 {
		r.mu.Unlock()
		return fmt.Errorf("close buffer %s: %w: %d leases, one by %s", b.rec.Name, ErrLeased, len(held), held[0].Holder)
	}
	was := b.state
	b.state = gone
	if r.buffers[b.rec.Name] == b {
		delete(r.buffers, b.rec.Name)
	}
	r.mu.Unlock()
	if was != ready {
		return nil
	}
	return b.release()
}

// release unmaps and closes; the turn is held, and no lease is out.
func (b *buffer) release() error {
	err := errors.Join(b.memory.Unmap(), b.file.close())
	b.memory, b.file = nil, nil
	if err != nil {
		return fmt.Errorf("buffer %s: %w", b.rec.Name, err)
	}
	return nil
}
