package node

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestStateLock: one process a state directory, and the error says which.
func TestStateLock(t *testing.T) {
	dir := t.TempDir()
	l, err := lockState(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lockState(dir); err == nil || !strings.Contains(err.Error(), fmt.Sprint(os.Getpid())) {
		t.Errorf("got %v, want the holder's process id", err)
	}
	l.release()
	l, err = lockState(dir)
	if err != nil {
		t.Errorf("after its release: %v", err)
	}
	l.release()
}
