#!/bin/bash
# need-packages.sh PACKAGE... installs the Debian packages that are missing.
# When all are there it touches neither apt nor the network.
set -euo pipefail

missing=()
for p in "$@"; do
	status=$(dpkg-query -W -f '${db:Status-Status}' "$p" 2>/dev/null || true)
	[ "$status" = installed ] || missing+=("$p")
done
[ ${#missing[@]} -gt 0 ] || exit 0

if ! command -v apt-get >/dev/null; then
	echo "missing: ${missing[*]}; this is no Debian, so install what corresponds and try again" >&2
	# Another distribution has other names: go on, the tools may be there.
	exit 0
fi
sudo=()
if [ "$(id -u)" -ne 0 ]; then
	if ! command -v sudo >/dev/null; then
		echo "missing: ${missing[*]}; run as root: apt-get install ${missing[*]}" >&2
		exit 1
	fi
	sudo=(sudo)
fi
echo "installing ${missing[*]} (apt-get)"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
apt() { "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -y "$@" </dev/null >>"$log" 2>&1; }
# A fresh machine has no package lists, or stale ones.
if ! apt install --no-install-recommends "${missing[@]}"; then
	if ! { apt update && apt install --no-install-recommends "${missing[@]}"; }; then
		tail -n 20 "$log" >&2
		echo "could not install ${missing[*]}: see above; is the network reachable?" >&2
		exit 1
	fi
fi
