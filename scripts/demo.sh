#!/bin/bash
# demo.sh MOVER: two nodes on this host, each with its own configuration, move
# a generated file submitted with curl and another with `mover cp`; both are
# compared with sha256 on the two sides.
#
# DEMO_MIB sets the size of each file (default 1024).
set -euo pipefail
mover=$(realpath "$1")
. "$(dirname "$0")/nodes.sh"
mib=${DEMO_MIB:-1024}

mkdir -p out
work=$(mktemp -d "$PWD/out/demo.XXXXXX")
pids=()
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
# The token goes through a file, not the command line, which others can see.
(umask 077 && printf 'header = "Authorization: Bearer %s"\n' "$(tr -d '\n' <"$token_file")" >"$work/curlrc")
call() { curl -sS --max-time 30 --config "$work/curlrc" "$@"; }

step="moving one.bin, submitted with curl"
answer=$(call --fail-with-body -X POST "http://$api_a/v1/jobs" -H 'Content-Type: application/json' \
	-d '{"source": {"path": "data/one.bin"}, "destination": {"node": "b", "path": "incoming/one.bin"}}') ||
	{ echo "demo: the job was refused: $answer" >&2; exit 1; }
id=$(json_field id <<<"$answer")
[ -n "$id" ] || { echo "demo: no job in the answer: $answer" >&2; exit 1; }
echo "demo: curl POST /v1/jobs -> job $id"
deadline=$((SECONDS + 300))
while :; do
	answer=$(call --fail-with-body "http://$api_a/v1/jobs/$id") || { echo "demo: $answer" >&2; exit 1; }
	state=$(json_field state <<<"$answer")
	printf '  %-10s %5d of %d MiB\n' "$state" "$(($(json_field bytes_done <<<"$answer") >> 20))" "$mib"
	case $state in
	succeeded) break ;;
	failed | partial | canceled | expired) echo "demo: the job ended $state: $answer" >&2; exit 1 ;;
	esac
	[ "$SECONDS" -lt "$deadline" ] || { echo "demo: the job did not end within 300 s: $answer" >&2; exit 1; }
	sleep 0.3
done
curl_seconds=$(json_field seconds <<<"$answer")

step="moving two.bin with mover cp"
echo "demo: mover cp a/data/two.bin b:incoming/"
begin=$(date +%s.%N)
"$mover" cp --server "http://$api_a" --token-file "$token_file" "$work/a/data/two.bin" b:incoming/
cp_seconds=$(echo "$(date +%s.%N) $begin" | awk '{ print $1 - $2 }')

step="comparing"
for file in one.bin two.bin; do
	sent=$(sha256sum <"$work/a/data/$file")
	got=$(sha256sum <"$work/b/incoming/$file")
	if [ "$sent" != "$got" ]; then
		echo "demo: $file differs: sent ${sent%% *}, arrived ${got%% *}" >&2
		exit 1
	fi
	echo "demo: sha256 of $file is ${sent%% *} on both sides"
done
if find "$work/b/incoming" -name '.mover.*' | grep -q .; then
	echo "demo: partial files were left behind" >&2
	exit 1
fi

step="stopping the nodes"
for pid in "${pids[@]}"; do
	stop_node "$pid"
done
pids=()
awk -v mib="$mib" -v a="$curl_seconds" -v b="$cp_seconds" 'BEGIN {
	printf "demo: %d MiB at %.0f MB/s (job), %.0f MB/s (mover cp, with start and end), verified and durable\n",
		mib, mib * 1.048576 / a, mib * 1.048576 / b }'
echo "demo: verified"
