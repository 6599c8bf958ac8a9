package datapath

import (
	"context"
	"fmt"
	"sync"
)

// linkSet are the sessions that hold something.
type linkSet struct {
	mu     sync.Mutex
	links  map[*Link]struct{}
	closed bool
}

func (s *linkSet) add(l *Link) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	if s.links == nil {
		s.links = map[*Link]struct{}{}
	}
	s.links[l] = struct{}{}
	return true
}

func (s *linkSet) remove(l *Link) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.links, l)
}

func (s *linkSet) all() []*Link {
	s.mu.Lock()
	defer s.mu.Unlock()
	links := make([]*Link, 0, len(s.links))
	for l := range s.links {
		links = append(links, l)
	}
	return links
}

func (s *linkSet) each(f func(*Link)) {
	for _, l := range s.all() {
		f(l)
	}
}

// close ends all sessions and takes no more.
func (s *linkSet) close(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	for _, l := range s.all() {
		l.Close("the node stops")
	}
	for _, l := range s.all() {
		select {
		case <-l.done:
		case <-ctx.Done():
			return fmt.Errorf("the session with %s did not end in time: a file system or a device does not answer", l.conn.Peer().Name)
		}
	}
	return nil
}
