#!/bin/bash
# demo.sh MOVER: two nodes on this host, each with its own configuration, move
# a big file submitted with curl and another with `mover cp`, a tree of 2,000
# small files, a buffer of 256 MiB, and the tree again, asked for at the
# destination; a job under way is canceled. All that arrives is compared with sha256.
#
# DEMO_MIB sets the size of each big file (default 1024).
set -euo pipefail
mover=$(realpath "$1")
. "$(dirname "$0")/nodes.sh"
mib=${DEMO_MIB:-1024}

mkdir -p out
work=$(mktemp -d "$PWD/out/demo.XXXXXX")
pids=()
buffer_files=()
step="preparing"

finish() {
	local status=$?
	trap - EXIT
	for pid in "${pids[@]}"; do
		stop_node "$pid" || status=1
	done
	if [ "$status" -ne 0 ]; then
		echo "demo: FAILED while $step" >&2
		for node in a b; do
			[ -f "$work/$node.log" ] || continue
			echo "--- the end of node $node's log:" >&2
			tail -n 20 "$work/$node.log" >&2
			cp "$work/$node.log" "out/demo-$node.log"
		done
		[ ! -f out/demo-a.log ] || echo "--- whole logs: out/demo-a.log out/demo-b.log" >&2
	fi
	# A buffer outlives its node; this matters only if it was not deleted below.
	[ "${#buffer_files[@]}" -eq 0 ] || rm -f "${buffer_files[@]}"
	rm -rf "$work"
	exit "$status"
}
trap finish EXIT
trap 'exit 130' INT TERM

rm -f out/demo-a.log out/demo-b.log
step="checking space and memory"
need_kib=$(((4 * mib + 512) * 1024))
free_kib=$(df -Pk "$work" | awk 'NR == 2 { print $4 }')
if [ "$free_kib" -lt "$need_kib" ]; then
	echo "demo: needs $((need_kib / 1024)) MiB of disk under $PWD/out, there are $((free_kib / 1024)); free some, or DEMO_MIB=64 make demo" >&2
	exit 1
fi
available_kib=$(awk '$1 == "MemAvailable:" { print $2 }' /proc/meminfo)
if [ "$available_kib" -lt $((1024 * 1024)) ]; then
	echo "demo: needs 1024 MiB of memory, $((available_kib / 1024)) are available" >&2
	exit 1
fi

step="making the nodes' identities"
for node in a b; do
	mkdir -p "$work/$node"
	printf 'node: {name: %s, state_dir: "%s"}\n' "$node" "$work/$node/state" >"$work/$node/identity.yaml"
done
fingerprint_a=$("$mover" identity --config "$work/a/identity.yaml" --fingerprint 2>/dev/null)
fingerprint_b=$("$mover" identity --config "$work/b/identity.yaml" --fingerprint 2>/dev/null)

free_port; api_a=127.0.0.1:$free_port_result
free_port; api_b=127.0.0.1:$free_port_result
free_port; control_a=127.0.0.1:$free_port_result
free_port; control_b=127.0.0.1:$free_port_result

# configure NODE API CONTROL PEER PEER_CONTROL PEER_FINGERPRINT
configure() {
	mkdir -p "$work/$1/data" "$work/$1/incoming"
	local delegates=
	[ "$1" != a ] || delegates="delegates: [b]   # b may bring jobs of its own users"
	cat >"$work/$1/config.yaml" <<-YAML
		node: {name: $1, state_dir: "$work/$1/state"}
		api: {listen: $2}
		control: {listen: [$3]}
		peers:
		  $4: {addresses: [$5], fingerprint: "$6"}
		roots:
		  data: {path: "$work/$1/data", read: [$4]}
		  incoming: {path: "$work/$1/incoming", write: [$4]}
		devices: {providers: soft}
		$delegates
		soft: {addresses: [127.0.0.1, 127.0.0.2]}   # two addresses, two rails
		memory: {arena: 256MiB, session_share: 64MiB}
	YAML
}
configure a "$api_a" "$control_a" b "$control_b" "$fingerprint_b"
configure b "$api_b" "$control_b" a "$control_a" "$fingerprint_a"

step="starting the nodes"
for node in a b; do
	# A session of its own: a Ctrl-C here must reach it once, through stop_node.
	setsid "$mover" run --config "$work/$node/config.yaml" >"$work/$node.log" 2>&1 </dev/null &
	pids+=($!)
done
wait_ready "${pids[0]}" "http://$api_a" "$work/a.log"
wait_ready "${pids[1]}" "http://$api_b" "$work/b.log"
echo "demo: node a on http://$api_a, node b on http://$api_b, software verbs over two rails"

step="generating the files"
echo "demo: generating two files of $mib MiB"
head -c "$((mib << 20))" /dev/urandom >"$work/a/data/one.bin"
head -c "$((mib << 20))" /dev/urandom >"$work/a/data/two.bin"

token_file=$work/a/state/token
# Tokens go through files, not the command line, which others can see.
for node in a b; do
	(umask 077 && printf 'header = "Authorization: Bearer %s"\n' "$(tr -d '\n' <"$work/$node/state/token")" >"$work/$node/curlrc")
done
# call NODE ARGUMENTS: curl with the node's token; a refusal is an error.
call() {
	local node=$1
	shift
	curl -sS --max-time 60 --fail-with-body --config "$work/$node/curlrc" "$@"
}
declare -A api=([a]=http://$api_a [b]=http://$api_b)

# submit NODE JOB sets id.
submit() {
	answer=$(call "$1" -X POST "${api[$1]}/v1/jobs" -H 'Content-Type: application/json' -d "$2") ||
		{ echo "demo: the job was refused: $answer" >&2; exit 1; }
	id=$(json_field id <<<"$answer")
	[ -n "$id" ] || { echo "demo: no job in the answer: $answer" >&2; exit 1; }
	echo "demo: curl POST ${api[$1]}/v1/jobs -> job $id"
}

# follow NODE STATE shows job id until it has ended; STATE is the end it must
# come to. It sets answer.
follow() {
	local deadline=$((SECONDS + 300)) state line last=
	while :; do
		answer=$(call "$1" "${api[$1]}/v1/jobs/$id") || { echo "demo: $answer" >&2; exit 1; }
		state=$(json_field state <<<"$answer")
		line=$(printf '  %-10s %5d of %d MiB, %d of %d items' "$state" \
			"$(($(json_field bytes_done <<<"$answer") >> 20))" "$(($(json_field bytes_total <<<"$answer") >> 20))" \
			"$(json_field items_done <<<"$answer")" "$(json_field items_total <<<"$answer")")
		[ "$line" = "$last" ] || echo "$line"
		last=$line
		case $state in
		"$2") return ;;
		succeeded | failed | partial | canceled | expired) echo "demo: the job ended $state, not $2: $answer" >&2; exit 1 ;;
		esac
		[ "$SECONDS" -lt "$deadline" ] || { echo "demo: the job did not end within 300 s: $answer" >&2; exit 1; }
		sleep 0.3
	done
}

# same WHAT SENT ARRIVED: two sums.
same() {
	if [ -z "$2" ] || [ "$2" != "$3" ]; then
		echo "demo: $1 differs: sent ${2%% *}, arrived ${3%% *}" >&2
		exit 1
	fi
	echo "demo: sha256 of $1 is ${2%% *} on both sides"
}

step="moving one.bin, submitted with curl"
submit a '{"source": {"path": "data/one.bin"}, "destination": {"node": "b", "path": "incoming/one.bin"}}'
follow a succeeded
curl_seconds=$(json_field seconds <<<"$answer")

step="moving two.bin with mover cp"
echo "demo: mover cp a/data/two.bin b:incoming/"
begin=$(date +%s.%N)
"$mover" cp --server "http://$api_a" --token-file "$token_file" "$work/a/data/two.bin" b:incoming/
cp_seconds=$(echo "$(date +%s.%N) $begin" | awk '{ print $1 - $2 }')

step="comparing the big files"
for file in one.bin two.bin; do
	same "$file" "$(sha256sum <"$work/a/data/$file")" "$(sha256sum <"$work/b/incoming/$file")"
done
rm "$work/b/incoming/two.bin"

step="moving a tree of 2,000 small files"
echo "demo: a tree of 2,000 files of 0 to 20,000 bytes, an empty directory and a symlink"
mkdir -p "$work/a/data/tree/empty"
for i in $(seq 0 19); do mkdir "$work/a/data/tree/d$i"; done
# Each file is a piece of the big one, of an odd size that is the same each time.
awk 'BEGIN { for (i = 0; i < 2000; i++) printf "d%d/f%04d %d\n", i % 20, i, (i * 7919) % 20001 }' |
	while read -r name size; do head -c "$size" <&3 >"$work/a/data/tree/$name"; done 3<"$work/a/data/one.bin"
ln -s d1/f0001 "$work/a/data/tree/link"
# tree_sum DIRECTORY: of all names, kinds, modes, times and bytes.
tree_sum() {
	(
		cd "$1"
		find . -printf '%P %y %m %s %T@ %l\n' | awk '$2 == "d" { $4 = "" } { print }' | LC_ALL=C sort
		find . -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum
	) | sha256sum
}
submit a '{"source": {"path": "data/tree"}, "recursive": true, "destination": {"node": "b", "path": "incoming/tree"}}'
follow a succeeded
tree_seconds=$(json_field seconds <<<"$answer")
same "the tree" "$(tree_sum "$work/a/data/tree")" "$(tree_sum "$work/b/incoming/tree")"

step="moving a buffer"
echo "demo: a buffer of 256 MiB on each node, filled on a"
for node in a b; do
	answer=$(call "$node" -X PUT "${api[$node]}/v1/buffers/demo" -H 'Content-Type: application/json' \
		-d '{"bytes": "256MiB", "read": ["*"], "write": ["*"]}') || { echo "demo: $answer" >&2; exit 1; }
	buffer_files+=("$(json_field path <<<"$answer")")
done
head -c $((256 << 20)) /dev/urandom >"$work/buffer.bin"
answer=$(call a -X PUT "${api[a]}/v1/buffers/demo/data" -H 'Content-Type: application/octet-stream' \
	-T "$work/buffer.bin") || { echo "demo: $answer" >&2; exit 1; }
submit a '{"source": {"buffer": "demo"}, "destination": {"node": "b", "buffer": "demo"}}'
follow a succeeded
buffer_seconds=$(json_field seconds <<<"$answer")
same "the buffer" "$(sha256sum <"$work/buffer.bin")" "$(call b "${api[b]}/v1/buffers/demo/data" | sha256sum)"
for node in a b; do
	call "$node" -X DELETE "${api[$node]}/v1/buffers/demo?wait=10s"
done
buffer_files=()
rm "$work/buffer.bin"

step="pulling the tree to the destination"
echo "demo: node b is asked for what node a has"
submit b '{"source": {"node": "a", "path": "data/tree"}, "recursive": true, "destination": {"node": "b", "path": "incoming/pulled"}}'
follow b succeeded
same "the tree pulled" "$(tree_sum "$work/a/data/tree")" "$(tree_sum "$work/b/incoming/pulled")"

step="canceling a job under way"
# Held back, or it would be over before anybody could cancel it.
submit a '{"source": {"path": "data/two.bin"}, "destination": {"node": "b", "path": "incoming/never.bin"}, "bandwidth_limit": "16MiB/s"}'
sleep 1
answer=$(call a -X POST "${api[a]}/v1/jobs/$id/cancel") || { echo "demo: $answer" >&2; exit 1; }
follow a canceled
if [ -e "$work/b/incoming/never.bin" ]; then
	echo "demo: a canceled job has left its file" >&2
	exit 1
fi
if find "$work/b/incoming" -name '.mover.*' | grep -q .; then
	echo "demo: partial files were left behind" >&2
	exit 1
fi
echo "demo: nothing was left behind"

step="stopping the nodes"
for pid in "${pids[@]}"; do
	stop_node "$pid"
done
pids=()
awk -v mib="$mib" -v a="$curl_seconds" -v b="$cp_seconds" -v t="$tree_seconds" -v m="$buffer_seconds" 'BEGIN {
	printf "demo: %d MiB at %.0f MB/s (job), %.0f MB/s (mover cp, with start and end), verified and durable\n",
		mib, mib * 1.048576 / a, mib * 1.048576 / b
	printf "demo: 2,000 files in %.2f s, durable; 256 MiB from buffer to buffer in %.2f s; all verified\n", t, m }'
echo "demo: verified"
