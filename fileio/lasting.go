package fileio

import (
	"errors"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// lastingMax bounds the directories that a root remembers.
const lastingMax = 4096

// lasting remembers directories whose own name this process has synced, in the
// directory it is in. That a directory is there says nothing: one that made it
// may have been killed, or failed, before its sync, and all that is published in
// it would go with it. So the names of all directories above are synced once,
// whoever made them. Safe for concurrent use.
type lasting struct {
	mu    sync.Mutex
	count int
	// rels are paths below the root, by their last component.
	rels map[string][]string
}

func (l *lasting) has(rel string) bool {
	_, name := splitParent(rel)
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Contains(l.rels[name], rel)
}

func (l *lasting) add(rel string) {
	_, name := splitParent(rel)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.rels == nil || l.count >= lastingMax {
		l.rels, l.count = map[string][]string{}, 0
	}
	if !slices.Contains(l.rels[name], rel) {
		l.rels[name] = append(l.rels[name], rel)
		l.count++
	}
}

// forget is called before a directory of that name is made, wherever: what had
// the name before is gone.
func (l *lasting) forget(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count -= len(l.rels[name])
	delete(l.rels, name)
}

// syncAbove makes the names of the directory rel and of all above it durable,
// as far as this process has not done so before.
func (r *Root) syncAbove(rel string) error {
	for rel != "." {
		parent, _ := splitParent(rel)
		if !r.lasting.has(rel) {
			switch err := r.syncNames(parent); {
			case err == nil:
				r.lasting.add(rel)
			case errors.Is(err, unix.EACCES), errors.Is(err, unix.EROFS):
				// Others let us through there but not in, or nobody: then the name
				// is not one that we ever made, since that needs both.
			default:
				return err
			}
		}
		rel = parent
	}
	return nil
}

// syncNames makes the names in the directory rel durable.
func (r *Root) syncNames(rel string) error {
	fd, err := r.openDescriptor(rel, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer r.k.close(fd)
	return r.k.fsync(fd)
}
