#!/bin/bash
# docker-bases.sh DIR makes DIR/build.tar and DIR/run.tar, root file systems of
# Debian that stand in for golang:*-bookworm and debian:bookworm-slim where no
# image can be pulled. They are made again when what goes into them changes, or
# after 30 days.
#
# MOVER_DEBIAN_MIRROR names the mirror; without it the host's own is used.
set -euo pipefail
dir=$(realpath -m "$1")
suite=bookworm
max_days=30
run_packages=libibverbs1,ibverbs-providers
# curl is in golang's image too; the test's client needs it.
build_packages=$run_packages,gcc,libc6-dev,libibverbs-dev,ca-certificates,curl

mirror=${MOVER_DEBIAN_MIRROR:-}
if [ -z "$mirror" ]; then
	# The host's mirror, if it has this suite.
	mirror=$(apt-get indextargets --format '$(SITE) $(RELEASE)' 2>/dev/null | awk -v s="$suite" '$2 == s && /^https?:/ && !seen++ { print $1 }' || true)
	mirror=${mirror:-http://deb.debian.org/debian}
fi
goroot=$(go env GOROOT)
go_version=$(go env GOVERSION)

mkdir -p "$dir/debs"
tree=""
trap '[ -z "$tree" ] || rm -rf "$tree"' EXIT

# base NAME PACKAGES [GOROOT]
base() {
	local name=$1 packages=$2 go=${3:-} key
	key="1 $suite $mirror $packages ${go:+$go_version} $(dpkg --print-architecture)"
	if [ -f "$dir/$name.tar" ] && [ "$(cat "$dir/$name.key" 2>/dev/null)" = "$key" ] &&
		[ -z "$(find "$dir/$name.tar" -mtime "+$max_days")" ]; then
		return 0
	fi
	echo "making the base \"$name\" from $mirror (a minute or two)"
	rm -f "$dir/$name.tar" "$dir/$name.key"
	tree=$(mktemp -d "$dir/$name.XXXXXX")
	chmod 755 "$tree" # it becomes the container's /
	# In namespaces of its own: what debootstrap mounts and starts ends with it.
	if ! unshare --mount --pid --fork --kill-child --mount-proc --propagation private \
		nice debootstrap --variant=minbase --cache-dir="$dir/debs" --include="$packages" \
		"$suite" "$tree" "$mirror" >"$dir/$name.log" 2>&1; then
		tail -n 20 "$dir/$name.log" >&2
		echo "debootstrap failed: see $dir/$name.log; is $mirror reachable? MOVER_DEBIAN_MIRROR names another" >&2
		return 1
	fi
	rm -rf "$tree"/var/lib/apt/lists/* "$tree"/var/cache/apt/* "$tree"/usr/share/doc "$tree"/usr/share/man "$tree"/usr/share/locale
	if [ -n "$go" ]; then
		mkdir -p "$tree/usr/local/go"
		tar -C "$go" --exclude=./test --exclude=./doc --exclude=./api -cf - . | tar -C "$tree/usr/local/go" -xf -
	fi
	tar -C "$tree" --numeric-owner -cf "$dir/$name.new" .
	rm -rf "$tree"
	tree=""
	mv "$dir/$name.new" "$dir/$name.tar"
	echo "$key" >"$dir/$name.key"
}

base run "$run_packages"
base build "$build_packages" "$goroot"
