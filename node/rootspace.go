package node

import (
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// spaceLimit bounds the wait for statfs(2), which a network file system whose
// server is gone never answers.
const spaceLimit = 2 * time.Second

// rootSpace asks file systems how much room they have. One question at a time
// is out for each path, so that a dead one holds one thread, whoever asks.
type rootSpace struct {
	limit  time.Duration
	statfs func(path string, fs *unix.Statfs_t) error

	mu  sync.Mutex
	out map[string]*spaceQuestion
}

// spaceQuestion is a statfs under way. over is closed once fs and err are there.
type spaceQuestion struct {
	over chan struct{}
	fs   unix.Statfs_t
	err  error
}

func newRootSpace() *rootSpace {
	return &rootSpace{limit: spaceLimit, statfs: unix.Statfs, out: map[string]*spaceQuestion{}}
}

// ask asks, or joins who asks already.
func (s *rootSpace) ask(path string) (unix.Statfs_t, error) {
	s.mu.Lock()
	q := s.out[path]
	if q == nil {
		q = &spaceQuestion{over: make(chan struct{})}
		s.out[path] = q
		go func() {
			q.err = s.statfs(path, &q.fs)
			s.mu.Lock()
			delete(s.out, path)
			s.mu.Unlock()
			close(q.over)
		}()
	}
	s.mu.Unlock()
	limit := time.NewTimer(s.limit)
	defer limit.Stop()
	select {
	case <-q.over:
		return q.fs, q.err
	case <-limit.C:
		return unix.Statfs_t{}, fmt.Errorf("the file system has not answered for %v; is its server gone?", s.limit)
	}
}
