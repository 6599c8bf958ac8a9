# Sourced by docker-test.sh: a container that lacks something ends with one
# line that says what, and what to do.
#
# This machine need not have RDMA: a libibverbs of verbs/ibv's tests and a
# /sys/class with one device are mounted into the container, where the rest is real.

# lacks NAME PATTERN... -- ARGUMENT... runs a container that must end with exit
# code 1 and one line, which has each of the patterns (fixed strings).
lacks() {
	local name=$1 status=0 patterns=() p
	shift
	while [ "$1" != -- ]; do
		patterns+=("$1")
		shift
	done
	shift
	limit=60 once "$@" >"$logs/$name.out" 2>"$logs/$name.log" || status=$?
	[ "$status" -eq 1 ] || fail "$name: exit code $status, not 1: $(cat "$logs/$name.log")"
	[ "$(wc -l <"$logs/$name.log")" -eq 1 ] && [ ! -s "$logs/$name.out" ] ||
		fail "$name: not one line: $(cat "$logs/$name.log" "$logs/$name.out")"
	for p in "mover: " "${patterns[@]}"; do
		grep -Fq -- "$p" "$logs/$name.log" || fail "$name: no \"$p\" in: $(cat "$logs/$name.log")"
	done
	rm "$logs/$name.out"
	echo "  $name: $(cat "$logs/$name.log")"
}

# An empty class folder is a host whose modules are loaded and that has no
# device; so this is the same on a host with one.
mkdir -p "$work/none/infiniband"
lacks no-device "no device to use" "this host has no RDMA device" "rdma link" "devices.fallback is forbid" "set devices.fallback: allow" -- \
	-v "$work/none:/sys/class:ro" "$image"
if [ ! -e /sys/class/infiniband ]; then
	lacks no-rdma "no device to use" "this host has no RDMA device" "load its driver" "set devices.fallback: allow" -- "$image"
fi

# The device fake0 in sysfs, and the library for it.
class=$work/fake/class
mkdir -p "$work/fake/lib" "$class/infiniband/fake0/device" "$class/infiniband/fake0/ports/1" "$class/infiniband_verbs/uverbs0"
echo fake0 >"$class/infiniband_verbs/uverbs0/ibdev"
# The library reads its settings from a page; their order is ours to choose.
cp verbs/ibv/testdata/fake.c verbs/ibv/testdata/fake.map deploy/testdata/memlock.c "$work/fake/lib"
knobs=$(grep -o '\bK_[A-Z0-9_]*' verbs/ibv/testdata/fake.c | sort -u)
{
	printf '#define CTL_BYTES 131072\n#define GID_OFFSET 4096\n#define POST_OFFSET 65536\n#define POSTS 128\nenum {\n'
	printf '\t%s,\n' $knobs
	echo '};'
} >"$work/fake/lib/knobs.h"
truncate -s 131072 "$work/fake/lib/libfake.so.ctl"
# set_knob NAME VALUE, below 256, in the low byte (both architectures are
# little-endian).
set_knob() {
	local at
	at=$(grep -nx "K_$1" <<<"$knobs" | cut -d: -f1)
	printf "\\x$(printf %x "$2")" | dd of="$work/fake/lib/libfake.so.ctl" bs=1 seek=$(((at - 1) * 8 + ${3:-0})) conv=notrunc status=none
}
set_knob MAX_MR_SIZE 1 5 # 1 TiB
docker_ run --rm --network none -v "$work/fake/lib:/src" -w /src mover-base:build sh -ec '
	gcc -shared -fPIC -O2 -Wall -I . -o libfake.so fake.c -Wl,--version-script=fake.map
	gcc -O2 -Wall -o memlock memlock.c'
chown -R 9470:9470 "$work/fake/lib"
chmod 666 "$work/fake/lib/libfake.so.ctl"
cat >"$work/fake/config.yaml" <<-YAML
	node: {name: fake}
	devices: {fallback: forbid, libibverbs: /fake/libfake.so}
	memory: {arena: 64MiB, session_share: 32MiB, hugepages: none}
YAML
fake=(-v "$class:/sys/class:ro" -v "$work/fake/lib:/fake" -v "$work/fake/config.yaml:/etc/mover/config.yaml:ro")
node=(--device /dev/null:/dev/infiniband/uverbs0)

# The real library cannot open a device without its node; this one is told so.
set_knob OPEN_ERRNO 2 # ENOENT
lacks no-device-flag "no device to use" "device fake0 cannot be opened" "/dev/infiniband/uverbs0" "pass --device /dev/infiniband" -- \
	"${fake[@]}" "$image"
set_knob OPEN_ERRNO 0

# First that the limit is one for this user, with these capabilities.
is "locking 1 MiB of memory with a limit of 64 KiB" "$(once "${fake[@]}" --ulimit memlock=65536:65536 --entrypoint /fake/memlock "$image")" \
	"Cannot allocate memory"
is "locking 1 MiB of memory with a limit of 4 MiB" "$(once "${fake[@]}" --ulimit memlock=4194304:4194304 --entrypoint /fake/memlock "$image")" locked
lacks memlock "memlock limit too low" "registering memory needs 72 MiB" "65536 bytes" "fake0" "docker: --ulimit memlock=-1" -- \
	"${fake[@]}" "${node[@]}" --ulimit memlock=65536:65536 "$image"

# With device and limit it serves: so it was these that were missing. Where
# limits cannot be raised, CAP_IPC_LOCK stands for it, which only root can have.
may_lock=("${unlimited[@]}")
[ ${#may_lock[@]} -gt 0 ] || may_lock=(--user 0:0 --cap-add IPC_LOCK --tmpfs /var/lib/mover)
docker_ run -d --name fake --network none --read-only --cap-drop ALL --security-opt no-new-privileges \
	"${fake[@]}" "${node[@]}" "${may_lock[@]}" --health-interval 1s "$image" >/dev/null
healthy fake
[[ $(docker_ logs fake 2>&1) == *provider=ibv* ]] || fail "the node with the device does not say that it uses it"
stopped fake
