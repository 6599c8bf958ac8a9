#!/bin/sh
# Regenerates peer.pb.go and peer_grpc.pb.go from peer.proto. The plugins are
# built from the versions in go.mod, so that everyone gets the same output.
set -eu
cd "$(dirname "$0")/../.." # the path of a .proto is its name in the process-wide registry
command -v protoc >/dev/null || {
	echo "generate.sh: protoc is missing; on Debian: apt-get install protobuf-compiler" >&2
	exit 1
}
plugins=$(mktemp -d)
trap 'rm -rf "$plugins"' EXIT
go build -o "$plugins/" google.golang.org/protobuf/cmd/protoc-gen-go
go build -o "$plugins/" google.golang.org/grpc/cmd/protoc-gen-go-grpc
PATH="$plugins:$PATH" protoc --go_out=. --go_opt=paths=source_relative \
	--go-grpc_out=. --go-grpc_opt=paths=source_relative peer/peerpb/peer.proto
