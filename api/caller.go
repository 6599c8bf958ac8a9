package api

import (
	"context"
	"net/http"
	"os"
	"strconv"
	"strings"

	v1 "mover/api/v1"
)

// caller is who makes a request, and what it may do.
type caller struct {
	owner string // of its jobs: "node/token", "node/uid:N"
	scope Scope
	roots Roots
	// from is the node that asks for its user (ServeRemote); "" is a user of
	// this node. Such a caller sees the jobs that this node forwarded alone.
	from string
}

// mayRead and mayWrite report whether the caller's jobs may name node's root.
func (c *caller) mayRead(node, root string) bool  { return allows(c.roots.Read, node, root) }
func (c *caller) mayWrite(node, root string) bool { return allows(c.roots.Write, node, root) }

// mayChange reports whether c may act on what belongs to owner.
func (c *caller) mayChange(owner string) bool { return c.owner == owner || c.scope >= ScopeAdmin }

// Keys of a request's context. Only this package can set them, so that no
// header can stand in for what they say.
type (
	credentialsKey struct{} // *credentials, of a connection to the Unix socket
	remoteKey      struct{} // *caller, of a request that ServeRemote makes
)

// credentials are a process's at the other end of a Unix socket, as the kernel
// tells them.
type credentials struct {
	uid uint32
	err error // they could not be had
}

// authenticate returns who makes a request, or the problem of not knowing. It
// may be called again while the answer is under way: a token may be revoked.
func (a *API) authenticate(r *http.Request) (*caller, error) {
	if c, ok := r.Context().Value(remoteKey{}).(*caller); ok {
		return c, nil
	}
	if c, ok := r.Context().Value(credentialsKey{}).(*credentials); ok {
		return a.socketUser(c)
	}
	headers := r.Header.Values("Authorization")
	if len(headers) == 0 {
		return nil, unauthenticated("", "this needs a token: send the header Authorization: Bearer TOKEN; `mover token new` makes one")
	}
	scheme, plain, _ := strings.Cut(headers[0], " ")
	if len(headers) == 1 && strings.EqualFold(scheme, "Bearer") {
		if t := a.cfg.Tokens.Find(strings.TrimSpace(plain)); t != nil {
			return &caller{owner: a.cfg.NodeName + "/" + t.Name, scope: t.Scope, roots: t.Roots}, nil
		}
	}
	return nil, unauthenticated("invalid_token", "the token is not one of this node's; check that it is whole, or make one with `mover token new`")
}

// socketUser returns what the user behind a connection to the Unix socket may
// do. Its credentials alone decide: a token is not looked at.
func (a *API) socketUser(c *credentials) (*caller, error) {
	if c.err != nil {
		a.cfg.Logger.Error("no credentials of a connection to the Unix socket", "err", c.err)
		return nil, refuse(http.StatusForbidden, v1.CodeNotAUser, "the kernel does not tell which user this is; use the TCP address with a token")
	}
	who := &caller{owner: a.cfg.NodeName + "/uid:" + strconv.FormatUint(uint64(c.uid), 10)}
	if c.uid == 0 || c.uid == uint32(os.Geteuid()) {
		// Who can read the node's memory and files can do anything anyway.
		who.scope, who.roots = ScopeAdmin, AllRoots()
		return who, nil
	}
	u, ok := (*a.socketUsers.Load())[c.uid]
	if !ok {
		return nil, refuse(http.StatusForbidden, v1.CodeNotAUser,
			"the user of this process may not use the node's socket: list its uid under socket_users in the node's configuration, or use the TCP address with a token")
	}
	who.scope, who.roots = u.Scope, u.Roots
	return who, nil
}

// asRemote returns a request's context that says who another node asks for.
func asRemote(ctx context.Context, c *caller) context.Context {
	return context.WithValue(ctx, remoteKey{}, c)
}
