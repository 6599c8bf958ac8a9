package fileio

import (
	"sync"
	"testing"
)

// careless is a kernel that lets the package break a rule: each planted fault
// below is one that this package could have, and that only a power cut, a full
// disk or a killed process would show.
type careless struct {
	kernel
	how string

	mu       sync.Mutex
	unsynced []int       // files whose sync is put off
	modes    map[int]int // modes that are put off, by descriptor
	renamed  map[identity]bool
}

func (c *careless) isDir(fd int) bool {
	st, err := linux{}.fstat(fd) // a look of the fault's own, which is not let fail
	return err == nil && kindOf(st) == KindDir
}

func (c *careless) fsync(fd int) error {
	dir := c.isDir(fd)
	switch {
	case c.how == "files are not synced" && !dir, c.how == "directories are not synced" && dir:
		return nil
	case c.how == "a failed sync is ignored":
		_ = c.kernel.fsync(fd)
		return nil
	case c.how == "the sync comes after the rename" && !dir:
		c.mu.Lock()
		defer c.mu.Unlock()
		c.unsynced = append(c.unsynced, fd)
		return nil
	case c.how == "only the directory of the name is synced" && dir:
		st, _ := linux{}.fstat(fd)
		c.mu.Lock()
		here := c.renamed[identityOf(st)]
		c.mu.Unlock()
		if !here {
			return nil
		}
	}
	return c.kernel.fsync(fd)
}

func (c *careless) flush(fd int) error {
	err := c.kernel.flush(fd)
	if c.how == "a failed close is ignored" {
		return nil
	}
	return err
}

func (c *careless) pwrite(fd int, p []byte, off int64) (int, error) {
	n, err := c.kernel.pwrite(fd, p, off)
	if c.how == "a short write is believed" && err == nil || c.how == "a failed write is ignored" && err != nil {
		return len(p), nil
	}
	return n, err
}

func (c *careless) pread(fd int, p []byte, off int64) (int, error) {
	n, err := c.kernel.pread(fd, p, off)
	if c.how == "a short read is believed" && err == nil || c.how == "a failed read is ignored" && err != nil {
		return len(p), nil
	}
	return n, err
}

func (c *careless) fchmod(fd int, mode uint32) error {
	if c.how == "the mode comes after the rename" && !c.isDir(fd) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.modes[fd] = int(mode)
		return nil
	}
	return c.kernel.fchmod(fd, mode)
}

func (c *careless) rename(dirFD int, from, to string, flags uint) error {
	if c.how == "what is there is removed before the rename" {
		_ = c.kernel.unlink(dirFD, to)
	}
	err := c.kernel.rename(dirFD, from, to, flags)
	if c.how == "a failed rename is ignored" {
		err = nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if st, statErr := (linux{}).fstat(dirFD); statErr == nil {
		c.renamed[identityOf(st)] = true
	}
	for _, fd := range c.unsynced {
		_ = c.kernel.fsync(fd)
	}
	c.unsynced = nil
	for fd, mode := range c.modes {
		_ = c.kernel.fchmod(fd, uint32(mode))
	}
	clear(c.modes)
	return err
}

func (c *careless) unlink(dirFD int, name string) error {
	if c.how == "partial files are not removed" && IsPartial(name) {
		return nil
	}
	return c.kernel.unlink(dirFD, name)
}

// TestPlantedFileFaults plants each fault and lets the sweep find it.
func TestPlantedFileFaults(t *testing.T) {
	files := map[string]transfer{}
	for _, tr := range fileTransfers(t) {
		files[tr.name] = tr
	}
	over, fresh, loose := files["always over a file"], files["into new directories"], files["not durable"]
	tree := treeTransfers(t)[0]
	for _, planted := range []struct {
		how  string
		only string     // the call whose failure shows it, for speed
		in   []transfer // each of which must show it
	}{
		{"files are not synced", "", []transfer{over, fresh, tree}},
		{"directories are not synced", "", []transfer{over, fresh, tree}},
		{"only the directory of the name is synced", "", []transfer{fresh, tree}},
		{"the sync comes after the rename", "fsync", []transfer{over, fresh, tree}},
		{"the mode comes after the rename", "", []transfer{over, fresh, tree}},
		{"a failed sync is ignored", "fsync", []transfer{over, fresh, tree}},
		{"a failed close is ignored", "pwrite", []transfer{loose}},
		{"a short write is believed", "pwrite", []transfer{over, fresh, loose, tree}},
		{"a failed write is ignored", "pwrite", []transfer{over, fresh, loose, tree}},
		{"a short read is believed", "pread", []transfer{over, fresh, loose}},
		{"a failed read is ignored", "pread", []transfer{over, fresh, loose}},
		{"a failed rename is ignored", "renameat2", []transfer{over, fresh, loose}},
		{"what is there is removed before the rename", "renameat2", []transfer{over}},
		{"partial files are not removed", "fsync", []transfer{over, tree}},
	} {
		t.Run(planted.how, func(t *testing.T) {
			for _, tr := range planted.in {
				var count tally
				tr.only = planted.only
				err := tr.sweep(func(k kernel) kernel {
					return &careless{kernel: k, how: planted.how, modes: map[int]int{}, renamed: map[identity]bool{}}
				}, 1, []uint64{1}, &count)
				if err == nil {
					t.Errorf("not found in %q, by %d faults, %d killed processes and %d power cuts", tr.name, count.faults, count.kills, count.cuts)
					continue
				}
				t.Logf("found: %v", err)
			}
		})
	}
}
