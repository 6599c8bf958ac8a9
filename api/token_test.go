package api

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCreateAndFind(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	roots := Roots{Read: []string{"*:data"}, Write: []string{"host-b:in", "host-c:*"}}
	plain, err := CreateToken(path, "alice", ScopeSubmit, roots)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(plain, "mvr_") || len(plain) != 47 {
		t.Errorf("%d characters", len(plain))
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	tokens, err := LoadTokens(path)
	if err != nil {
		t.Fatal(err)
	}
	second, err := CreateToken(path, "bob", ScopeRead, Roots{})
	if err != nil || second == plain {
		t.Fatal(err)
	}
	if tokens.Find(second) != nil {
		t.Error("seen before Reload")
	}
	if err := tokens.Reload(path); err != nil {
		t.Fatal(err)
	}
	a, b := tokens.Find(plain), tokens.Find(second)
	if a == nil || a.Name != "alice" || a.Scope != ScopeSubmit || !cmp.Equal(a.Roots, roots) || b == nil || b.Name != "bob" || len(tokens.List()) != 2 {
		t.Errorf("%+v, %+v", a, b)
	}
	for _, c := range []struct {
		node, root  string
		read, write bool
	}{
		{"host-a", "data", true, false}, {"host-b", "in", false, true}, {"host-a", "in", false, false},
		{"host-c", "anything", false, true}, {"host-c", "data", true, true}, {"", "", false, false}, {"*", "data", true, false},
	} {
		who := caller{roots: a.Roots}
		if who.mayRead(c.node, c.root) != c.read || who.mayWrite(c.node, c.root) != c.write {
			t.Errorf("%s:%s read %v, write %v", c.node, c.root, who.mayRead(c.node, c.root), who.mayWrite(c.node, c.root))
		}
	}
	data, _ := os.ReadFile(path)
	if strings.Contains(string(data), plain[4:]) || !strings.Contains(string(data), hashOf(plain)) {
		t.Errorf("the file must have the hash alone:\n%s", data)
	}
	entries, _ := os.ReadDir(filepath.Dir(path))
	if len(entries) != 1 {
		t.Errorf("left behind: %v", entries)
	}
}

func TestCreateRefused(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "tokens.yaml")
	if _, err := CreateToken(path, "alice", ScopeRead, Roots{}); err != nil {
		t.Fatal(err)
	}
	before, _ := os.ReadFile(path)
	for name, f := range map[string]func() (string, error){
		"twice":    func() (string, error) { return CreateToken(path, "alice", ScopeRead, Roots{}) },
		"name":     func() (string, error) { return CreateToken(path, "a/b", ScopeRead, Roots{}) },
		"no scope": func() (string, error) { return CreateToken(path, "b", 0, Roots{}) },
		"scope":    func() (string, error) { return CreateToken(path, "b", 9, Roots{}) },
		"root":     func() (string, error) { return CreateToken(path, "b", ScopeRead, Roots{Read: []string{"data"}}) },
		"root *":   func() (string, error) { return CreateToken(path, "b", ScopeRead, Roots{Write: []string{"a*:data"}}) },
		"folder":   func() (string, error) { return CreateToken(filepath.Join(dir, "none", "t"), "b", ScopeRead, Roots{}) },
	} {
		if plain, err := f(); err == nil || plain != "" {
			t.Errorf("%s: accepted", name)
		} else if name == "twice" && !errors.Is(err, ErrTokenExists) {
			t.Errorf("%s: %v", name, err)
		}
	}
	after, _ := os.ReadFile(path)
	if string(before) != string(after) {
		t.Error("the file changed")
	}
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := CreateToken(path, "b", ScopeRead, Roots{}); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("group-readable: %v", err)
	}
}

func TestListAndRevoke(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	if _, err := ListTokens(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
	if err := RevokeToken(path, "a"); !errors.Is(err, ErrNoToken) {
		t.Errorf("no file: %v", err)
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("a refused revocation made the file")
	}
	plain := map[string]string{}
	for _, name := range []string{"a", "b", "c"} {
		var err error
		if plain[name], err = CreateToken(path, name, ScopeSubmit, AllRoots()); err != nil {
			t.Fatal(err)
		}
	}
	tokens, err := LoadTokens(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := RevokeToken(path, "b"); err != nil {
		t.Fatal(err)
	}
	list, err := ListTokens(path)
	if err != nil || len(list) != 2 || list[0].Name != "a" || list[1].Name != "c" || list[1].Scope != ScopeSubmit || !cmp.Equal(list[1].Roots, AllRoots()) {
		t.Errorf("%+v, %v", list, err)
	}
	if err := RevokeToken(path, "b"); !errors.Is(err, ErrNoToken) {
		t.Errorf("twice: %v", err)
	}
	if tokens.Find(plain["b"]) == nil {
		t.Error("gone before Reload")
	}
	if err := tokens.Reload(path); err != nil || tokens.Find(plain["b"]) != nil || tokens.Find(plain["a"]) == nil {
		t.Errorf("after Reload: %v", err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

func TestCreateConcurrently(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			if _, err := CreateToken(path, fmt.Sprint("t", i), ScopeRead, Roots{}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	tokens, err := LoadTokens(path)
	if err != nil || len(tokens.List()) != 8 {
		t.Errorf("%v", err)
	}
}

func TestLoadRefused(t *testing.T) {
	good := "version: 1\ntokens: [{name: a, scope: read, sha256: " + strings.Repeat("0", 64) + "}]\n"
	entry := func(s string) string { return "version: 1\ntokens: [" + s + "]\n" }
	hash := strings.Repeat("0", 64)
	dir := t.TempDir()
	for name, c := range map[string]struct {
		data string
		mode os.FileMode
		want string
	}{
		"group":        {good, 0o640, "chmod 600"},
		"world":        {good, 0o604, "chmod 600"},
		"world writes": {good, 0o602, "chmod 600"},
		"empty":        {"", 0o600, "mover token new"},
		"not YAML":     {"{", 0o600, "mover token new"},
		"unknown":      {"version: 1\nnope: 1\n", 0o600, "nope"},
		"version":      {"version: 2\ntokens: []\n", 0o600, "version"},
		"two":          {good + "---\n" + good, 0o600, "single document"},
		"name":         {entry("{name: 'a b', scope: read, sha256: " + hash + "}"), 0o600, "token 1: name"},
		"scope":        {entry("{name: a, scope: root, sha256: " + hash + "}"), 0o600, "scope"},
		"hash":         {entry("{name: a, scope: read, sha256: 00}"), 0o600, "sha256"},
		"plain":        {entry("{name: a, scope: read, sha256: mvr_x}"), 0o600, "sha256"},
		"roots":        {entry("{name: a, scope: read, sha256: " + hash + ", roots: {read: [data]}}"), 0o600, "NODE:root"},
		"twice":        {entry("{name: a, scope: read, sha256: " + hash + "}, {name: b, scope: read, sha256: " + hash + "}"), 0o600, "token 2"},
		"huge":         {good + strings.Repeat("#", maxTokensFileBytes), 0o600, "larger"},
	} {
		path := filepath.Join(dir, strings.ReplaceAll(name, " ", "_"))
		if err := os.WriteFile(path, []byte(c.data), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, c.mode); err != nil {
			t.Fatal(err)
		}
		if _, err := LoadTokens(path); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := LoadTokens(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("absent: %v", err)
	}
	if _, err := LoadTokens(dir); err == nil {
		t.Error("a directory")
	}
	// A reload that fails keeps what was.
	path := filepath.Join(dir, "live")
	plain, err := CreateToken(path, "a", ScopeRead, Roots{})
	if err != nil {
		t.Fatal(err)
	}
	tokens, err := LoadTokens(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := tokens.Reload(path); err == nil || tokens.Find(plain) == nil {
		t.Errorf("reload: %v", err)
	}
	if _, _, err := parseTokens([]byte(`{"version":1,"tokens":[{"name":"a","scope":"read","sha256":"` + hash + `"}]}`)); err != nil {
		t.Errorf("JSON: %v", err)
	}
}

func FuzzTokens(f *testing.F) {
	f.Add([]byte("version: 1\ntokens: [{name: a, scope: read, sha256: " + strings.Repeat("0", 64) + ", roots: {read: ['*:x']}}]\n"))
	f.Add([]byte("a: &a [*a]"))
	f.Add([]byte(`{"version":1,"tokens":[]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		_, list, err := parseTokens(data)
		if err != nil {
			return
		}
		for _, tok := range list {
			if tok.Name == "" || tok.Scope < ScopeMetrics || tok.Scope > ScopeAdmin {
				t.Fatalf("accepted %+v", tok)
			}
		}
	})
}
