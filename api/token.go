package api

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"mover/job"
)

// Scope is what a token may do; each includes those before it.
type Scope uint8

// The scopes. The zero Scope allows nothing.
const (
	ScopeMetrics Scope = iota + 1 // GET /metrics
	ScopeRead                     // everything that only shows
	ScopeSubmit                   // submit jobs, and cancel its own
	ScopeAdmin                    // everything, also for other owners
)

var scopeNames = []string{"", "metrics", "read", "submit", "admin"}

// ParseScope reads a scope's name.
func ParseScope(s string) (Scope, error) {
	if i := slices.Index(scopeNames[1:], s); i >= 0 {
		return Scope(i + 1), nil
	}
	return 0, fmt.Errorf("a scope must be one of %s", strings.Join(scopeNames[1:], ", "))
}

func (s Scope) String() string {
	if int(s) < len(scopeNames) {
		return scopeNames[s]
	}
	return ""
}

// Roots is which roots a token may name in its jobs: patterns NODE:root, where
// either side may be * for all. A job needs its source's root in Read and its
// destination's in Write; a token without patterns moves nothing.
type Roots struct {
	Read  []string `yaml:"read,omitempty"`
	Write []string `yaml:"write,omitempty"`
}

// AllRoots is every root of every node.
func AllRoots() Roots { return Roots{Read: []string{"*:*"}, Write: []string{"*:*"}} }

const maxRootPatterns = 256

// Check says what is wrong with a pattern, or nil.
func (r Roots) Check() error {
	for _, list := range [][]string{r.Read, r.Write} {
		if len(list) > maxRootPatterns {
			return fmt.Errorf("a token has at most %d roots each to read and to write", maxRootPatterns)
		}
		for _, p := range list {
			node, root, ok := strings.Cut(p, ":")
			if !ok || node != "*" && !job.ValidName(node) || root != "*" && !job.ValidName(root) {
				return fmt.Errorf("a token's root must be NODE:root, *:root, NODE:* or *:*")
			}
		}
	}
	return nil
}

func allows(patterns []string, node, root string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		n, r, _ := strings.Cut(p, ":")
		return (n == "*" || n == node) && (r == "*" || r == root)
	})
}

// Token is what is known of a token: never the token itself.
type Token struct {
	Name  string // part of the owner, "node/name"
	Scope Scope
	Roots Roots
	hash  [sha256.Size]byte
}

// tokenPrefix lets people and scanners of leaked secrets recognize a token.
const tokenPrefix = "mvr_"

// maxTokenBytes bounds what is hashed of a request; ours have 47.
const maxTokenBytes = 128

// newSecret returns a token of 256 random bits. A plain SHA-256 of it is a
// sufficient hash: there is nothing to guess that a slow hash would protect.
func newSecret() string {
	var raw [32]byte
	rand.Read(raw[:]) // never fails: crypto/rand ends the program instead
	return tokenPrefix + base64.RawURLEncoding.EncodeToString(raw[:])
}

// find returns the token whose secret is plain, or nil. The time it takes does
// not depend on which one matches, or how nearly.
func find(tokens []*Token, plain string) *Token {
	if plain == "" || len(plain) > maxTokenBytes {
		return nil
	}
	sum := sha256.Sum256([]byte(plain))
	var found *Token
	for _, t := range tokens {
		if subtle.ConstantTimeCompare(t.hash[:], sum[:]) == 1 {
			found = t
		}
	}
	return found
}

func hashOf(plain string) string {
	sum := sha256.Sum256([]byte(plain))
	return hex.EncodeToString(sum[:])
}
