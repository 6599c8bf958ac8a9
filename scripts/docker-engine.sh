# Sourced: a container engine of one's own. It lives in mount, network and PID
# namespaces of its own, so that an engine which is already there, the host's
# firewall and its mounts are left alone, and so that all of it ends with one
# process. The caller sets $work, a directory for its data, and is root.
#
#   engine_start        # then: docker_ ARGUMENT...
#   engine_stop         # leaves nothing running, nothing mounted

engine_pid=""
engine_run="" # of the socket, whose path must be short (unix(7): 108 bytes)

# docker_ is the engine's client, with no configuration or host from outside.
docker_() {
	DOCKER_HOST="unix://$engine_run/docker.sock" DOCKER_CONFIG="$work/client" \
		DOCKER_CONTEXT="" DOCKER_BUILDKIT="${DOCKER_BUILDKIT:-0}" \
		timeout -k 5 "${limit:-60}" "$engine_client" "$@"
}

# engine_start starts dockerd and waits until it answers.
engine_start() {
	# The client that came with the engine; another can be first in PATH.
	engine_client=/usr/bin/docker
	[ -x "$engine_client" ] || engine_client=$(command -v docker)
	engine_cgroup=mover-docker-test-$$
	engine_run=$(mktemp -d /tmp/mover-docker.XXXXXX)
	mkdir -p "$work/client"
	# shellcheck disable=SC2016 # the $s are for the inner shell
	setsid unshare --mount --net --pid --fork --kill-child --mount-proc --propagation private bash -c '
		set -e
		# Sockets, network namespaces and a key of the engine have fixed names
		# there; what another engine has there must not be seen either.
		mount -t tmpfs -o mode=755 tmpfs /run
		[ ! -d /etc/docker ] || mount -t tmpfs -o mode=755 tmpfs /etc/docker
		# cgroupfs: systemd would be told process numbers of this namespace.
		exec dockerd --host "unix://$3/docker.sock" --data-root "$1/engine" \
			--exec-root /run/docker --pidfile /run/docker.pid --bridge none \
			--exec-opt native.cgroupdriver=cgroupfs --cgroup-parent "/$2"
	' bash "$work" "$engine_cgroup" "$engine_run" >"$work/dockerd.log" 2>&1 </dev/null &
	engine_pid=$!
	for _ in $(seq 600); do
		if limit=5 docker_ version >/dev/null 2>&1; then
			return 0
		fi
		kill -0 "$engine_pid" 2>/dev/null || break
		sleep 0.1
	done
	echo "the container engine does not start:" >&2
	tail -n 20 "$work/dockerd.log" >&2
	return 1
}

# engine_stop ends the engine with its containers and waits for it.
engine_stop() {
	[ -n "$engine_pid" ] || return 0
	local daemon
	# dockerd is the first process of its PID namespace, and stops containers when
	# it is asked to end; killing its parent kills all that is in there.
	daemon=$(cat "/proc/$engine_pid/task/$engine_pid/children" 2>/dev/null || true)
	# shellcheck disable=SC2086 # a number, with a space behind it
	[ -z "${daemon// /}" ] || kill -TERM $daemon 2>/dev/null || true
	for _ in $(seq 200); do
		kill -0 "$engine_pid" 2>/dev/null || break
		sleep 0.1
	done
	kill -KILL "$engine_pid" 2>/dev/null || true
	wait "$engine_pid" 2>/dev/null || true
	engine_pid=""
	rm -rf "$engine_run"
	# Groups without processes stay when the engine was killed.
	find /sys/fs/cgroup -maxdepth 3 -type d -name "$engine_cgroup" -prune 2>/dev/null |
		while read -r group; do
			find "$group" -depth -type d -exec rmdir {} + 2>/dev/null || true
		done
}
