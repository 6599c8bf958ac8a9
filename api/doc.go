// Package api is the node's HTTP interface: jobs are submitted, watched and
// canceled here, and the node's devices, peers, roots and metrics read.
//
// It checks who asks (a bearer token, always), what the token allows (scope and
// roots), and the form of the request; what a job is and when it runs is
// package job's business. It must not know how bytes move, where configuration
// comes from, or how peers talk to each other: what it shows of those comes
// through NodeInfo.
//
//	tokens, err := api.LoadTokens("/var/lib/mover/tokens.yaml")
//	...
//	a, err := api.New(api.Config{NodeName: "host-a", Queue: q, Info: node, Tokens: tokens, Registry: reg})
//	...
//	if err := api.CheckListen(addr, false); err != nil { ... }
//	ln, err := net.Listen("tcp", addr)
//	...
//	err = a.Serve(ctx, ln) // until ctx ends
//
// Errors are application/problem+json with a stable code; they never repeat
// what the client sent, and never show a secret or a stack.
package api
