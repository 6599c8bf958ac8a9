//go:build linux

package main

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
)

// shared is a destination that was there before and that many jobs name, under
// every policy of overwriting. Whenever anybody looks, each file in it has to
// be one of those that it may be, whole.
type shared struct {
	node *node
	name string // below the root "incoming"
	tree bool

	mu  sync.Mutex
	may map[string]map[string]bool // by entry, then by value in a survey
}

const (
	sharedFiles = 3
	sharedTrees = 1
)

// makeShared makes a node's shared destinations, with content of their own.
func makeShared(n *node, r *rand.Rand) ([]*shared, error) {
	var all []*shared
	bytes := newNoise(r)
	for i := range sharedFiles {
		s := &shared{node: n, name: fmt.Sprintf("shared%d", i), may: map[string]map[string]bool{}}
		what, err := writeNoise(s.path(), r.Int64N(4<<20), bytes)
		if err != nil {
			return nil, err
		}
		if err := redate(s.path(), r); err != nil {
			return nil, err
		}
		s.allow(survey{"": what})
		all = append(all, s)
	}
	for i := range sharedTrees {
		// Made like a source, then moved to where it is to be.
		made, err := makeTree(n, fmt.Sprintf("sharedtree%d", i), 60, r, bytes)
		if err != nil {
			return nil, err
		}
		s := &shared{node: n, name: made.name, tree: true, may: map[string]map[string]bool{}}
		if err := os.Rename(n.path("data", made.name), s.path()); err != nil {
			return nil, fmt.Errorf("making a shared destination: %w", err)
		}
		s.allow(made.has)
		all = append(all, s)
	}
	return all, nil
}

func (s *shared) path() string { return s.node.path("incoming", s.name) }

// allow adds what may be there from now on.
func (s *shared) allow(what survey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for rel, w := range what {
		if s.may[rel] == nil {
			s.may[rel] = map[string]bool{}
		}
		s.may[rel][w] = true
	}
}

// check looks at all of it, and says what is wrong, "" if nothing is.
func (s *shared) check() (string, error) {
	found, _, err := look(s.path())
	if err != nil {
		return "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for rel, what := range found {
		if !s.may[rel][what] {
			return fmt.Sprintf("%s/%s is %s, which is neither what was there nor what any job sent", s.name, rel, what), nil
		}
	}
	for rel := range s.may {
		if found[rel] == "" {
			return fmt.Sprintf("%s/%s was there and is gone", s.name, rel), nil
		}
	}
	return "", nil
}

// glance looks at one entry of it while jobs overwrite it.
func (s *shared) glance(r *rand.Rand) (string, error) {
	s.mu.Lock()
	at, rel := r.IntN(len(s.may)), ""
	for rel = range s.may {
		if at--; at < 0 {
			break
		}
	}
	s.mu.Unlock()
	path := filepath.Join(s.path(), rel)
	info, err := os.Lstat(path)
	if err != nil {
		return fmt.Sprintf("%s/%s was there and is gone: %v", s.name, rel, err), nil
	}
	what, err := describe(path, fs.FileInfoToDirEntry(info))
	if err != nil {
		return "", fmt.Errorf("looking at a shared destination: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.may[rel][what] {
		return fmt.Sprintf("%s/%s is for a moment %s, which is neither what was there nor what any job sent", s.name, rel, what), nil
	}
	return "", nil
}
