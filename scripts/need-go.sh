#!/bin/bash
# Says at once when Go is missing or too old, instead of after minutes of
# downloads with an error about syntax.
set -euo pipefail
need=$(sed -n 's/^go \([0-9]*\.[0-9]*\).*/\1/p' go.mod)

if ! command -v go >/dev/null; then
	echo "mover needs Go $need or newer; found none in PATH or /usr/local/go/bin; see https://go.dev/dl/" >&2
	exit 1
fi
found=$(GOTOOLCHAIN=local go env GOVERSION 2>/dev/null || GOTOOLCHAIN=local go version | cut -d' ' -f3)
found=${found#go}
if [ "$(printf '%s\n%s\n' "$need" "$found" | sort -V | head -n1)" != "$need" ]; then
	echo "mover needs Go $need or newer; found $found ($(command -v go)); see https://go.dev/dl/" >&2
	exit 1
fi
