#!/bin/bash
# docker-build.sh VERSION builds the container image mover:VERSION with the
# engine that is there. DOCKER_BUILD_ARGS are more arguments of `docker build`,
# such as "--build-arg RUN_BASE=mirror.example/debian:bookworm-slim".
set -euo pipefail
version=$1
cd "$(dirname "$0")/.."
if ! docker version >/dev/null 2>&1; then
	echo "make docker needs a container engine that you may use, and \`docker version\` fails; on Debian: apt-get install docker.io, and be in the group docker or root" >&2
	exit 1
fi
# shellcheck disable=SC2086 # one word per argument
docker build -t "mover:$version" -t mover:latest --build-arg VERSION="$version" \
	--build-arg REVISION="$(git rev-parse HEAD 2>/dev/null || true)" ${DOCKER_BUILD_ARGS:-} .
echo "built mover:$version; docs/container.md says how to run it"
