package api

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	"go.yaml.in/yaml/v3"

	"mover/job"
)

// Limits of the tokens file.
const (
	maxTokensFileBytes = 1 << 20
	maxTokens          = 1000
)

// Errors about one token of a file.
var (
	ErrTokenExists = errors.New("a token with this name exists; choose another name")
	ErrNoToken     = errors.New("there is no token of this name; `mover token ls` lists them")
)

// Tokens is the set of tokens that a file lists. Safe for concurrent use.
type Tokens struct {
	list atomic.Pointer[[]*Token]
}

// tokensFile is the file, YAML or JSON: hashes only, so that one file can be
// copied to every node.
type tokensFile struct {
	Version int          `yaml:"version"`
	Tokens  []tokenEntry `yaml:"tokens"`
}

type tokenEntry struct {
	Name   string `yaml:"name"`
	Scope  string `yaml:"scope"`
	SHA256 string `yaml:"sha256"`
	Roots  Roots  `yaml:"roots,omitempty"`
}

// LoadTokens reads a tokens file. It must be a regular file without access for
// group and others, since who can write it can do anything.
func LoadTokens(path string) (*Tokens, error) {
	t := &Tokens{}
	if err := t.Reload(path); err != nil {
		return nil, err
	}
	return t, nil
}

// Reload reads the file at path, which may be another than before. On an error
// the set stays as it is.
func (t *Tokens) Reload(path string) error {
	_, list, err := readTokens(path)
	if err != nil {
		return err
	}
	t.list.Store(&list)
	return nil
}

// List returns the tokens. They must not be changed.
func (t *Tokens) List() []*Token { return slices.Clone(*t.list.Load()) }

// Find returns the token whose secret is plain, or nil.
func (t *Tokens) Find(plain string) *Token { return find(*t.list.Load(), plain) }

// CreateToken adds a token to the file, which it creates if need be (0600), and
// returns the secret, which is kept nowhere: show it once. The name becomes
// part of the owner of the token's jobs. Nodes see it after a Reload. The file
// is replaced as a whole: readers see the old or the new one, comments are lost.
// Errors include ErrTokenExists.
func CreateToken(path, name string, scope Scope, roots Roots) (plain string, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("create a token: %w", err)
		}
	}()
	if !job.ValidName(name) {
		return "", errors.New("the name must be 1 to 63 of the characters A-Z a-z 0-9 . _ - and begin with a letter or digit")
	}
	if scope < ScopeMetrics || scope > ScopeAdmin {
		return "", fmt.Errorf("a scope must be one of %s", strings.Join(scopeNames[1:], ", "))
	}
	if err := roots.Check(); err != nil {
		return "", err
	}
	plain = newSecret()
	err = changeTokens(path, func(file *tokensFile, list []*Token) error {
		if len(list) >= maxTokens {
			return fmt.Errorf("%s has %d tokens, as many as it may; remove some", path, maxTokens)
		}
		if slices.ContainsFunc(list, func(t *Token) bool { return t.Name == name }) {
			return ErrTokenExists
		}
		file.Tokens = append(file.Tokens, tokenEntry{Name: name, Scope: scope.String(), SHA256: hashOf(plain), Roots: roots})
		return nil
	})
	if err != nil {
		return "", err
	}
	return plain, nil
}

// RevokeToken removes a token from the file. Nodes refuse it after a Reload,
// and end its streams; its jobs go on. Errors include ErrNoToken.
func RevokeToken(path, name string) error {
	err := changeTokens(path, func(file *tokensFile, _ []*Token) error {
		i := slices.IndexFunc(file.Tokens, func(e tokenEntry) bool { return e.Name == name })
		if i < 0 {
			return ErrNoToken
		}
		file.Tokens = slices.Delete(file.Tokens, i, i+1)
		return nil
	})
	if err != nil {
		return fmt.Errorf("revoke a token: %w", err)
	}
	return nil
}

// ListTokens returns the tokens of a file in its order, for people: names,
// scopes and roots, which are no secret.
func ListTokens(path string) ([]*Token, error) {
	_, list, err := readTokens(path)
	return list, err
}

// changeTokens reads the file (a new one if there is none), lets change change
// it, and puts it in place, under a lock against other commands.
func changeTokens(path string, change func(file *tokensFile, list []*Token) error) error {
	unlock, err := lockDir(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer unlock()
	file, list, err := readTokens(path)
	if errors.Is(err, fs.ErrNotExist) {
		file.Version, err = 1, nil
	}
	if err != nil {
		return err
	}
	if err := change(&file, list); err != nil {
		return err
	}
	data, err := yaml.Marshal(file)
	if err != nil {
		return err
	}
	if len(data) > maxTokensFileBytes {
		return fmt.Errorf("%s would be larger than %d bytes; remove some tokens", path, maxTokensFileBytes)
	}
	return replaceFile(path, append([]byte("# Tokens of the HTTP API: hashes only. Add one with `mover token new`.\n"), data...))
}

func readTokens(path string) (file tokensFile, list []*Token, err error) {
	f, err := os.Open(path)
	if err != nil {
		return file, nil, fmt.Errorf("open the tokens file: %w; make it with `mover token new`", err)
	}
	defer f.Close()
	// The descriptor is asked, not the name, which may mean another file by now.
	info, err := f.Stat()
	if err != nil {
		return file, nil, fmt.Errorf("tokens file: %w", err)
	}
	if !info.Mode().IsRegular() {
		return file, nil, fmt.Errorf("tokens file %s: must be a regular file", path)
	}
	if perm := info.Mode().Perm(); perm&0o077 != 0 {
		return file, nil, fmt.Errorf("tokens file %s: others than its owner have access (mode %04o); run chmod 600 on it", path, perm)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxTokensFileBytes+1))
	if err != nil {
		return file, nil, fmt.Errorf("tokens file: %w", err)
	}
	if file, list, err = parseTokens(data); err != nil {
		return file, nil, fmt.Errorf("tokens file %s: %w", path, err)
	}
	return file, list, nil
}

// parseTokens reads the file's content. Errors name the entry by its number:
// they go to a terminal or a log, where a hash has no business.
func parseTokens(data []byte) (file tokensFile, list []*Token, err error) {
	if len(data) > maxTokensFileBytes {
		return file, nil, fmt.Errorf("is larger than %d bytes", maxTokensFileBytes)
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	dec.KnownFields(true)
	if err := dec.Decode(&file); err != nil {
		return tokensFile{}, nil, fmt.Errorf("is not as `mover token new` writes it: %w", err)
	}
	if dec.Decode(new(yaml.Node)) != io.EOF {
		return tokensFile{}, nil, errors.New("must be a single document")
	}
	if file.Version != 1 {
		return tokensFile{}, nil, errors.New("must have version: 1; a later version needs a later mover")
	}
	if len(file.Tokens) > maxTokens {
		return tokensFile{}, nil, fmt.Errorf("has more than %d tokens", maxTokens)
	}
	names, hashes := map[string]bool{}, map[[32]byte]bool{}
	for i, e := range file.Tokens {
		t := &Token{Name: e.Name, Roots: e.Roots}
		raw, err := hex.DecodeString(e.SHA256)
		switch {
		case !job.ValidName(e.Name):
			err = errors.New("name must be 1 to 63 of the characters A-Z a-z 0-9 . _ - and begin with a letter or digit")
		case err != nil || len(raw) != len(t.hash):
			err = errors.New("sha256 must be 64 hexadecimal digits")
		default:
			if t.Scope, err = ParseScope(e.Scope); err == nil {
				err = e.Roots.Check()
			}
		}
		if err == nil {
			copy(t.hash[:], raw)
			if names[e.Name] || hashes[t.hash] {
				err = errors.New("its name or its sha256 is listed before")
			}
		}
		if err != nil {
			return tokensFile{}, nil, fmt.Errorf("token %d: %w", i+1, err)
		}
		names[e.Name], hashes[t.hash] = true, true
		list = append(list, t)
	}
	return file, list, nil
}

// replaceFile puts data under path so that after a crash there is the old file
// or the new one: write aside, sync, rename, sync the directory.
func replaceFile(path string, data []byte) (err error) {
	dir := filepath.Dir(path)
	tmp, err := os.CreateTemp(dir, ".tokens-*") // 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(tmp.Name())
		}
	}()
	_, err = tmp.Write(data)
	if err == nil {
		err = tmp.Sync()
	}
	if closeErr := tmp.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
