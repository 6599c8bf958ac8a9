#!/bin/bash
# run.sh MOVER starts one node with config.yaml until Ctrl-C. Its state and two
# roots are under out/run, so that nothing of the host is touched.
set -euo pipefail
mover=$(realpath "$1")
. "$(dirname "$0")/nodes.sh"
dir=$PWD/out/run
mkdir -p "$dir/data" "$dir/incoming"

# config.yaml as it is, but for what is this directory's.
sed -e "s|^  name: \"\"|  name: here|" \
	-e "s|^  state_dir: .*|  state_dir: \"$dir/state\"|" \
	-e "s|^roots: {}|roots: {data: {path: \"$dir/data\", read: [\"*\"]}, incoming: {path: \"$dir/incoming\", write: [\"*\"]}}|" \
	config.yaml >"$dir/config.yaml"
"$mover" config check --config "$dir/config.yaml" >/dev/null
api=$(sed -n 's/^  listen: \(127[^ ]*\).*/\1/p' "$dir/config.yaml" | head -n 1)
[ -f "$dir/data/hello.txt" ] || echo "moved by mover" >"$dir/data/hello.txt"

log=$dir/mover.log
# A session of its own: a Ctrl-C here must reach it once, through stop_node.
# Not tee either, or the node would die of SIGPIPE instead of stopping.
setsid "$mover" run --config "$dir/config.yaml" > >(trap '' INT TERM; exec tee "$log") 2>&1 </dev/null &
pid=$!
trap 'stop_node "$pid"; exit' INT TERM
trap 'stop_node "$pid"' EXIT
wait_ready "$pid" "http://$api" "$log"
cat <<TEXT

mover runs on http://$api with $dir/config.yaml; Ctrl-C stops it.

Every request needs a token; an admin's is in $dir/state/token.
Paste into another terminal:

  export MOVER_SERVER=http://$api MOVER_TOKEN_FILE=$dir/state/token
  $mover cp --overwrite always $dir/data/hello.txt here:incoming/ && cat $dir/incoming/hello.txt

or, with curl:

  curl -H "Authorization: Bearer \$(cat \$MOVER_TOKEN_FILE)" \$MOVER_SERVER/v1/roots

TEXT
wait "$pid"
