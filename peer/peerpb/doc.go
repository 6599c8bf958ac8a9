// Package peerpb is the generated form of peer.proto, the protocol between the
// control planes of two nodes. Only package peer uses it; everything else
// speaks engine's messages.
//
// After a change of peer.proto run "go generate ./peer/peerpb". It needs protoc
// (Debian: protobuf-compiler); the two plugins are tools of go.mod.
package peerpb

//go:generate sh generate.sh
