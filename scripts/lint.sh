#!/bin/bash
# The checks that run nothing of mover's.
set -euo pipefail
. scripts/step.sh

format() {
	local bad
	bad=$(find . -name '*.go' -not -path './out/*' -print0 | xargs -0 gofmt -l)
	[ -z "$bad" ] || { echo "not formatted (gofmt -w):"; echo "$bad"; return 1; }
}

static() {
	go tool staticcheck ./...
}

no_cgo() { CGO_ENABLED=0 go build -buildvcs=false ./...; }
# With cgo and without the header of libibverbs; the flag stands for its absence.
no_header() { CGO_CFLAGS="-O2 -DMOVER_NO_VERBS_H" go vet ./verbs/ibv; }
arm64() { GOARCH=arm64 CGO_ENABLED=0 go build -buildvcs=false ./...; }

step "gofmt" format
step "go.mod is tidy" go mod tidy -diff
step "modules are what go.sum says" go mod verify
step "go vet" go vet ./...
step "go vet, with faults to inject" go vet -tags moverfault ./fault ./fileio ./node/device
step "staticcheck" static
step "builds without cgo" no_cgo
step "builds without the header of libibverbs" no_header
step "builds for arm64" arm64
