package node

import (
	"fmt"
	"slices"

	"mover/fileio"
	"mover/node/config"
	"mover/reason"
)

// roots are the directories that jobs can reach, with who may.
type roots struct {
	open   map[string]*fileio.Root
	config map[string]config.Root
}

// openRoots opens every configured root; a missing directory is an error.
func openRoots(cfg map[string]config.Root) (*roots, error) {
	r := &roots{open: map[string]*fileio.Root{}, config: cfg}
	for name, c := range cfg {
		root, err := fileio.OpenRoot(fileio.RootConfig{Name: name, Path: c.Path, MinFreeBytes: int64(c.MinFree), QuotaBytes: int64(c.Quota)})
		if err != nil {
			r.close()
			return nil, fmt.Errorf("roots.%s: %w", name, err)
		}
		r.open[name] = root
	}
	return r, nil
}

func (r *roots) close() {
	for _, root := range r.open {
		_ = root.Close() // read-only handles
	}
}

// readable finds a root whose files may go to a peer.
func (r *roots) readable(name, peer string) (*fileio.Root, error) {
	return r.allowed(name, peer, "read", r.config[name].Read)
}

// writable finds a root that may take files from a peer.
func (r *roots) writable(name, peer string) (*fileio.Root, error) {
	return r.allowed(name, peer, "write", r.config[name].Write)
}

func (r *roots) allowed(name, peer, what string, list []string) (*fileio.Root, error) {
	root := r.open[name]
	if root == nil {
		return nil, reason.New(reason.PathOutsideRoot, "there is no root of this name; see `roots` in the configuration of the node that should have it")
	}
	if !slices.Contains(list, peer) && !slices.Contains(list, "*") {
		return nil, reason.New(reason.NotAuthorized, "the root does not list node %s under %s; add it to roots.NAME.%s on the node that has the root", peer, what, what)
	}
	return root, nil
}
