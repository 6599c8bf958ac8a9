package node

import (
	"strings"
	"testing"

	"mover/node/config"
	"mover/reason"
)

func TestRootsAllow(t *testing.T) {
	r, err := openRoots(map[string]config.Root{
		"open":   {Path: t.TempDir(), Read: []string{"*"}, Write: []string{"*"}},
		"narrow": {Path: t.TempDir(), Read: []string{"b"}, Write: nil},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	for _, c := range []struct {
		root, peer  string
		read, write reason.Code
	}{
		{"open", "b", "", ""},
		{"narrow", "b", "", reason.NotAuthorized},
		{"narrow", "c", reason.NotAuthorized, reason.NotAuthorized},
		{"none", "b", reason.PathOutsideRoot, reason.PathOutsideRoot},
	} {
		if _, err := r.readable(c.root, c.peer); reason.Of(err) != c.read {
			t.Errorf("%s reads %s: %v, want %q", c.peer, c.root, err, c.read)
		}
		_, err := r.writable(c.root, c.peer)
		if reason.Of(err) != c.write {
			t.Errorf("%s writes %s: %v, want %q", c.peer, c.root, err, c.write)
		}
		if c.write == reason.NotAuthorized && !strings.Contains(err.Error(), "add it to roots.narrow.write") {
			t.Errorf("%v does not say what to do", err)
		}
	}
	if _, err := openRoots(map[string]config.Root{"gone": {Path: "/nonexistent"}}); err == nil || !strings.Contains(err.Error(), "roots.gone") {
		t.Errorf("%v does not name the setting", err)
	}
}
