package node

import (
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestHungFileSystemIsAskedOnce: a file system that does not answer costs who
// asks a moment, holds one goroutine, and is asked again once it does.
func TestHungFileSystemIsAskedOnce(t *testing.T) {
	asked, answer := make(chan string, 10), make(chan struct{})
	s := newRootSpace()
	s.limit = 10 * time.Millisecond
	s.statfs = func(path string, fs *unix.Statfs_t) error {
		asked <- path
		if path == "/hung" {
			<-answer
		}
		fs.Blocks = 7
		return nil
	}
	for range 5 {
		if _, err := s.ask("/hung"); err == nil || !strings.Contains(err.Error(), "has not answered") {
			t.Fatalf("%v", err)
		}
	}
	if len(asked) != 1 {
		t.Errorf("%d questions are out", len(asked))
	}
	s.limit = time.Minute
	if fs, err := s.ask("/well"); err != nil || fs.Blocks != 7 {
		t.Errorf("%+v, %v", fs, err)
	}
	close(answer)
	if fs, err := s.ask("/hung"); err != nil || fs.Blocks != 7 {
		t.Errorf("after it has answered: %+v, %v", fs, err)
	}
}
