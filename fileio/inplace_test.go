package fileio

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mover/reason"
)

// displace are the ways in which a directory is not where it was.
var displace = map[string]func(dir string) error{
	"moved": func(dir string) error { return os.Rename(dir, dir+".away") },
	"replaced by another": func(dir string) error {
		if err := os.Rename(dir, dir+".away"); err != nil {
			return err
		}
		return os.Mkdir(dir, 0o755)
	},
	"replaced by a symlink": func(dir string) error {
		if err := os.Rename(dir, dir+".away"); err != nil {
			return err
		}
		return os.Symlink("/", dir)
	},
}

// TestDirectoryMovedMeanwhile: a file whose directory is somewhere else by the
// time it is whole is not where the job said, and so it is not published.
func TestDirectoryMovedMeanwhile(t *testing.T) {
	for name, move := range displace {
		for _, overwrite := range []Overwrite{OverwriteFail, OverwriteAlways} {
			t.Run(name, func(t *testing.T) {
				r := newRoot(t)
				s, err := r.Create(context.Background(), CreateSpec{Rel: "a/d/f", Size: 3, Overwrite: overwrite, Durable: true})
				if err != nil {
					t.Fatal(err)
				}
				if _, err := s.WriteAt([]byte("abc"), 0); err != nil {
					t.Fatal(err)
				}
				if err := move(filepath.Join(r.Path(), "a/d")); err != nil {
					t.Fatal(err)
				}
				wantCode(t, s.Publish(context.Background()), reason.DestNotFound)
				if s.Published() {
					t.Error("it has its name")
				}
				wantNothingIn(t, filepath.Join(r.Path(), "a/d.away"))
			})
		}
	}
}

// TestGroupDirectoryMovedMeanwhile: the same for one directory of a group; the
// entries of the others are published.
func TestGroupDirectoryMovedMeanwhile(t *testing.T) {
	for name, move := range displace {
		t.Run(name, func(t *testing.T) {
			r := newRoot(t)
			g, err := r.CreateGroup(context.Background(), GroupSpec{Base: "b", Job: "j", Overwrite: OverwriteAlways, Durable: true, Entries: []GroupEntry{
				{Rel: "d/f", Size: 1}, {Rel: "d/l", Kind: KindSymlink, Target: "x"}, {Rel: "e/f", Size: 1}}})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := g.WriteAt([]byte("xy"), 0); err != nil {
				t.Fatal(err)
			}
			if err := move(filepath.Join(r.Path(), "b/d")); err != nil {
				t.Fatal(err)
			}
			if err := g.Publish(context.Background()); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{"DEST_NOT_FOUND", "DEST_NOT_FOUND", "published"}, codes(g.Outcomes())); diff != "" {
				t.Error(diff)
			}
			wantNothingIn(t, filepath.Join(r.Path(), "b/d.away"))
			if got, err := os.ReadFile(filepath.Join(r.Path(), "b/e/f")); err != nil || string(got) != "y" {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
}

func wantNothingIn(t *testing.T, dir string) {
	t.Helper()
	if list, err := os.ReadDir(dir); err != nil || len(list) != 0 {
		t.Errorf("%v in %s, %v", list, dir, err)
	}
}
