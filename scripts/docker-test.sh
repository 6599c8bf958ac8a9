#!/bin/bash
# docker-test.sh VERSION proves the container image with a real engine: builds
# it without network, lets two containers move files, and looks at what a person
# is told whose container lacks something. Logs are in out/docker-test.
#
# It needs root, for an engine of its own (scripts/docker-engine.sh); an engine
# that runs here already is not touched. Nothing is left behind but the bases
# under out/docker, which make the next run faster.
set -euo pipefail
version=$1
cd "$(dirname "$0")/.."
. scripts/nodes.sh
. scripts/docker-engine.sh

# What moves: a tree in one job, or its files in one job each. auto takes the
# tree if the API accepts it.
form=${DOCKER_TEST_FORM:-auto}

image=mover:test
mkdir -p out/docker-test out/docker
logs=$(realpath out/docker-test) # the engine takes no symbolic link on its way
begin=$SECONDS
what="preparing"

say() { what=$1; printf 'docker-test: %4d s  %s\n' "$((SECONDS - begin))" "$1"; }
fail() { echo "docker-test: $*" >&2; exit 1; }

# healthy NAME... waits until the engine calls the containers healthy.
healthy() {
	local name state
	for name in "$@"; do
		for _ in $(seq 120); do
			state=$(docker_ inspect --format '{{.State.Status}} {{.State.Health.Status}}' "$name")
			case $state in
			"running healthy") continue 2 ;;
			running*) sleep 0.5 ;;
			*) break ;;
			esac
		done
		fail "container $name is $state: $(docker_ inspect --format '{{json .State.Health.Log}}' "$name")"
	done
}

# stopped NAME stops a container, which must take SIGTERM as a wish to end well.
stopped() {
	docker_ stop --time 15 "$1" >/dev/null
	local code
	code=$(docker_ inspect --format '{{.State.ExitCode}}' "$1")
	[ "$code" = 0 ] || fail "container $1 ended with exit code $code when it was stopped"
}

finish() {
	local status=$? name
	trap - EXIT
	if [ -n "$engine_pid" ]; then
		for name in $(limit=20 docker_ ps -a --format '{{.Names}}' 2>/dev/null || true); do
			limit=20 docker_ logs "$name" >"$logs/$name.log" 2>&1 || true
			limit=20 docker_ rm -f -v "$name" >/dev/null 2>&1 || true
		done
	fi
	engine_stop
	[ ! -f "$work/dockerd.log" ] || cp "$work/dockerd.log" "$logs/dockerd.log"
	rm -rf "$work"
	if [ "$status" -ne 0 ]; then
		echo "docker-test: FAILED while $what" >&2
		for name in node-a node-b fake; do
			[ -f "$logs/$name.log" ] || continue
			echo "--- the end of container $name's log:" >&2
			tail -n 15 "$logs/$name.log" >&2
		done
		echo "--- whole logs: $logs" >&2
	fi
	exit "$status"
}

[ "$(id -u)" -eq 0 ] || { echo "docker-test starts a container engine of its own, which takes root: sudo make docker-test" >&2; exit 1; }
rm -f "$logs"/*.log
free_kib=$(df -Pk out | awk 'NR == 2 { print $4 }')
[ "$free_kib" -gt $((6 << 20)) ] || { echo "docker-test: needs 6 GiB of disk under $PWD/out, there are $((free_kib >> 20)); free some" >&2; exit 1; }
work=$(mktemp -d "$logs/work.XXXXXX")
trap finish EXIT
trap 'exit 130' INT TERM

say "making the base images"
scripts/docker-bases.sh out/docker

say "starting a container engine"
engine_start
for base in build run; do
	limit=120 docker_ import "out/docker/$base.tar" "mover-base:$base" >/dev/null
done

# What an earlier run compiled: the modules take minutes and rarely change.
cache=out/docker/go-build.tar
mkdir "$work/base"
if [ -f "$cache" ] && [ -z "$(find "$cache" -size +1500M)" ]; then
	ln "$cache" "$work/base/go-build.tar"
	printf 'FROM mover-base:build\nADD go-build.tar /root/.cache/\n' >"$work/base/Dockerfile"
	limit=120 docker_ build --network none -t mover-base:build "$work/base" >"$logs/base.log" 2>&1
fi

say "building the image from vendored modules, without network"
# Not the tree itself: vendor does not belong there.
mkdir "$work/context"
tar --exclude=./out --exclude=./.git -cf - . | tar -C "$work/context" -xf -
go mod vendor -o "$work/context/vendor"
limit=420 docker_ build --network none --pull=false -t "$image" \
	--build-arg BUILD_BASE=mover-base:build --build-arg RUN_BASE=mover-base:run \
	--build-arg VERSION="$version" "$work/context" >"$logs/build.log" 2>&1 ||
	{ tail -n 20 "$logs/build.log" >&2; fail "the image does not build"; }
docker_ build --network none --target build -t mover:build \
	--build-arg BUILD_BASE=mover-base:build --build-arg VERSION="$version" "$work/context" >"$logs/cache.log" 2>&1
docker_ create --name compiled mover:build true >/dev/null
docker_ cp compiled:/root/.cache/go-build - >"$cache.new"
mv "$cache.new" "$cache"
docker_ rm compiled >/dev/null

# Raising a limit takes CAP_SYS_RESOURCE, which root lacks on some machines
# that are containers themselves.
unlimited=(--ulimit memlock=-1)
if ! (ulimit -l unlimited) 2>/dev/null; then
	echo "  memlock limits cannot be raised on this machine: --ulimit memlock=-1 is left out"
	unlimited=()
fi

say "looking at the image"
. scripts/docker-test-image.sh
say "starting containers that lack something"
. scripts/docker-test-lacks.sh
say "starting two containers"
. scripts/docker-test-move.sh

what="stopping the engine"
say "passed; $form moved"
