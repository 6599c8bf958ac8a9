package node

import (
	"fmt"
	"os/user"
	"reflect"
	"slices"
	"strconv"
	"sync"

	"mover/fileio"
	"mover/node/config"
	"mover/reason"
)

// roots are the directories that jobs can reach, with who may. Any goroutine
// may call its methods.
type roots struct {
	mu     sync.RWMutex
	open   map[string]*fileio.Root
	config map[string]config.Root
	space  *rootSpace
}

// openRoots opens every configured root; a missing directory is an error.
func openRoots(cfg map[string]config.Root) (*roots, error) {
	r := &roots{space: newRootSpace()}
	return r, r.reload(cfg)
}

// reload opens what is new or has changed, and closes what is no longer
// configured; what is under way there goes on. After an error everything is as
// before.
func (r *roots) reload(cfg map[string]config.Root) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	next := map[string]*fileio.Root{}
	undo := func() {
		for name, root := range next {
			if r.open[name] != root {
				_ = root.Close()
			}
		}
	}
	for name, c := range cfg {
		if old := r.open[name]; old != nil && sameDirectory(r.config[name], c) {
			next[name] = old
			continue
		}
		fc, err := rootConfig(name, c)
		if err == nil {
			next[name], err = fileio.OpenRoot(fc)
		}
		if err != nil {
			delete(next, name)
			undo()
			return fmt.Errorf("roots.%s: %w", name, err)
		}
	}
	for name, root := range r.open {
		if next[name] != root {
			_ = root.Close() // read-only handles
		}
	}
	r.open, r.config = next, cfg
	return nil
}

// sameDirectory reports whether two settings differ in who may use the root at
// most.
func sameDirectory(a, b config.Root) bool {
	a.Read, a.Write, b.Read, b.Write = nil, nil, nil, nil
	return reflect.DeepEqual(a, b)
}

// rootConfig translates the settings, and looks up owner and group.
func rootConfig(name string, c config.Root) (fileio.RootConfig, error) {
	out := fileio.RootConfig{Name: name, Path: c.Path, MinFreeBytes: int64(c.MinFree), QuotaBytes: int64(c.Quota),
		FileMode: c.FileMode(), DirMode: c.DirMode(), UID: -1, GID: -1, Chown: c.Owner != "" || c.Group != ""}
	var err error
	if c.Owner != "" {
		out.UID, err = numberOf(c.Owner, func(s string) (string, error) {
			u, err := user.Lookup(s)
			if err != nil {
				return "", err
			}
			return u.Uid, nil
		})
	}
	if c.Group != "" && err == nil {
		out.GID, err = numberOf(c.Group, func(s string) (string, error) {
			g, err := user.LookupGroup(s)
			if err != nil {
				return "", err
			}
			return g.Gid, nil
		})
	}
	return out, err
}

// numberOf is the number of a user or a group, which may be given as one.
func numberOf(text string, lookup func(string) (string, error)) (int, error) {
	if n, err := strconv.Atoi(text); err == nil {
		return n, nil
	}
	id, err := lookup(text)
	if err != nil {
		return -1, fmt.Errorf("%w; create it, or give a number", err)
	}
	return strconv.Atoi(id)
}

func (r *roots) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, root := range r.open {
		_ = root.Close() // read-only handles
	}
}

// get finds a root by its name; nil if there is none.
func (r *roots) get(name string) (*fileio.Root, config.Root) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.open[name], r.config[name]
}

// names are those of all roots, sorted.
func (r *roots) names() []string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	var out []string
	for name := range r.open {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// readable finds a root whose files may go to a peer.
func (r *roots) readable(name, peer string) (*fileio.Root, error) {
	return r.allowed(name, peer, "read", func(c config.Root) []string { return c.Read })
}

// writable finds a root that may take files from a peer.
func (r *roots) writable(name, peer string) (*fileio.Root, error) {
	return r.allowed(name, peer, "write", func(c config.Root) []string { return c.Write })
}

func (r *roots) allowed(name, peer, what string, list func(config.Root) []string) (*fileio.Root, error) {
	root, c := r.get(name)
	if root == nil {
		return nil, reason.New(reason.PathOutsideRoot, "there is no root %s on the node that should have it; `mover roots` there lists those it has", name)
	}
	if names := list(c); !slices.Contains(names, peer) && !slices.Contains(names, "*") {
		return nil, reason.New(reason.NotAuthorized, "root %s does not list node %s under %s; add it to roots.%s.%s on the node that has the root", name, peer, what, name, what)
	}
	return root, nil
}
