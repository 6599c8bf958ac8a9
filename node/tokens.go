package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"mover/api"
)

// adminToken is the name of the token that a first run creates.
const adminToken = "admin"

// tokenHint says where a token is, or how to get one.
func (n *Node) tokenHint() string {
	if _, err := os.Stat(n.cfg.TokenFile()); err != nil {
		return "as made with `mover token new`"
	}
	return "in " + n.cfg.TokenFile()
}

// openTokens makes an admin token when there are no tokens yet.
func (n *Node) openTokens() error {
	if _, err := os.Stat(n.cfg.API.TokensFile); err == nil {
		return nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("api.tokens_file: %w", err)
	}
	plain, err := api.CreateToken(n.cfg.API.TokensFile, adminToken, api.ScopeAdmin, api.AllRoots())
	if err != nil {
		return fmt.Errorf("creating the first token: %w", err)
	}
	f, err := os.OpenFile(n.cfg.TokenFile(), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("saving the first token: %w", err)
	}
	err = f.Chmod(0o600) // an old file keeps its mode otherwise
	if err == nil {
		_, err = f.WriteString(plain + "\n")
	}
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("saving the first token: %w", err)
	}
	n.log.Info("created an admin token for the HTTP API", "token_file", n.cfg.TokenFile(), "hashes_in", n.cfg.API.TokensFile)
	return nil
}
