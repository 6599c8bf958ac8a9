# Sourced by docker-test.sh: two containers on a private network, as tight as
# docs/container.md has them, move files over the HTTP API.

address_a=10.231.77.2
address_b=10.231.77.3
docker_ network create --internal --subnet 10.231.77.0/24 movers >/dev/null

# Sizes on both sides of what matters: pages, slots, nothing at all.
tree=$work/a/data/tree
mkdir -p "$tree/deep/er" "$work/a/conf" "$work/b/conf" "$work/b/incoming"
n=0
for size in 0 1 511 4095 4096 4097 65535 65537 262144 1048577 2097151 2097153 5000001; do
	head -c "$size" /dev/urandom >"$tree/size-$size"
	n=$((n + 1))
	head -c "$((size / 3))" /dev/urandom >"$tree/deep/er/$n.bin"
done
head -c $((48 << 20)) /dev/urandom >"$tree/deep/big"
echo spaces >"$tree/deep/a name with spaces"

# container NAME ARGUMENT... runs the image as a node: default seccomp profile,
# nothing writable but what is mounted.
container() {
	local name=$1
	shift
	docker_ run --hostname "$name" --read-only --cap-drop ALL --security-opt no-new-privileges "${unlimited[@]}" \
		-v "state-$name:/var/lib/mover" -v "$work/$name/conf:/etc/mover:ro" "$@"
}

# Fingerprints first, made in the volumes that the nodes will have.
for name in a b; do
	echo "node: {name: $name}" >"$work/$name/conf/config.yaml"
done
fingerprint() { container "$1" --rm --network none "$image" identity --fingerprint --config /etc/mover/config.yaml 2>>"$logs/identity.log"; }
fingerprint_a=$(fingerprint a)
fingerprint_b=$(fingerprint b)

# configure NAME ADDRESS PEER PEER_ADDRESS PEER_FINGERPRINT ROOTS
configure() {
	cat >"$work/$1/conf/config.yaml" <<-YAML
		node: {name: $1}
		control: {listen: ["$2:9471"]}
		peers:
		  $3: {addresses: ["$4:9471"], fingerprint: "$5"}
		roots: {$6}
		# There is no adapter here, and the network is the test's own.
		devices: {providers: soft, fallback: allow}
		soft: {addresses: ["$2"], allow_cleartext: true}
		memory: {arena: 128MiB, session_share: 32MiB}
	YAML
}
configure a "$address_a" b "$address_b" "$fingerprint_b" "data: {path: /srv/data, read: [b]}"
configure b "$address_b" a "$address_a" "$fingerprint_a" "incoming: {path: /srv/incoming, write: [a]}"
chown -R 9470:9470 "$work/a" "$work/b"

node_() {
	local name=$1 address=$2
	shift 2
	container "$name" -d --name "node-$name" --network movers --ip "$address" --health-interval 1s "$@" "$image" >/dev/null
}
node_ a "$address_a" -v "$work/a/data:/srv/data:ro"
node_ b "$address_b" -v "$work/b/incoming:/srv/incoming"
healthy node-a node-b

confined=$(docker_ exec node-a grep -E '^(Uid|CapEff|CapBnd|NoNewPrivs|Seccomp):' /proc/1/status | tr -s '\t \n' ' ')
is "what process 1 may" "$confined" "Uid: 9470 9470 9470 9470 CapEff: 0000000000000000 CapBnd: 0000000000000000 NoNewPrivs: 1 Seccomp: 2 "
if docker_ exec node-a sh -c 'echo x >/usr/local/x' 2>/dev/null; then
	fail "the root file system is writable"
fi

# Who asks the API sits beside node a, as a sidecar: the API is on loopback.
cat >"$work/ask" <<'SH'
#!/bin/bash
exec curl -sS --max-time 30 --config <(printf 'header = "Authorization: Bearer %s"\n' "$(cat /var/lib/mover/token)") "$@"
SH
chmod 755 "$work/ask"
docker_ run -d --name client --network container:node-a --user 9470:9470 --read-only --cap-drop ALL \
	-v state-a:/var/lib/mover:ro -v "$work/ask:/ask:ro" mover-base:build sleep 1000 >/dev/null
# submit JSON prints the answer, with the status on the last line.
submit() {
	docker_ exec client /ask -w '\n%{http_code}\n' -H 'Content-Type: application/json' -d "$1" http://127.0.0.1:9470/v1/jobs
}
# ends NAME ANSWER waits for the job of an answer to submit: 0 if it succeeded;
# else what there is to say is in $said.
ends() {
	local id
	[ "$(tail -n 1 <<<"$2")" = 202 ] || fail "the job for $1 was refused: $2"
	id=$(json_field id <<<"$2")
	if limit=120 docker_ exec node-a mover jobs get --wait "$id" >"$logs/job.json" 2>"$logs/wait.log"; then
		return 0
	fi
	said="the job for $1 did not succeed: $(cat "$logs/wait.log" "$logs/job.json")"
	return 1
}

say "moving the files"
if [ "$form" != files ]; then
	answer=$(submit '{"source": {"path": "data/tree"}, "destination": {"node": "b", "path": "incoming/tree"}, "recursive": true}')
	# Without trees, the API or else the attempt says so.
	if [ "$form" = auto ] && [ "$(tail -n 1 <<<"$answer")" = 400 ] && [ "$(json_field code <<<"$answer")" = unsupported ]; then
		form=files
	elif ends tree "$answer"; then
		form=tree
	elif [ "$form" = auto ] && [[ $said == *" ended failed: UNSUPPORTED_FILE_TYPE: "*" is a directory"* ]]; then
		form=files
	else
		fail "$said"
	fi
fi
if [ "$form" = files ]; then
	(cd "$work/a/data" && find tree -type d) | while read -r folder; do
		install -d -o 9470 -g 9470 "$work/b/incoming/$folder"
	done
	(cd "$work/a/data" && find tree -type f | sort) >"$work/list"
	while read -r -u 4 file; do
		ends "$file" "$(submit "{\"source\": {\"path\": \"data/$file\"}, \"destination\": {\"node\": \"b\", \"path\": \"incoming/$file\"}}")" || fail "$said"
	done 4<"$work/list"
fi

say "comparing"
sums() { (cd "$1" && find . -type f -exec sha256sum {} + | sort -k 2); }
sums "$work/a/data/tree" >"$logs/sent.sha256"
sums "$work/b/incoming/tree" >"$logs/arrived.sha256"
[ "$(wc -l <"$logs/sent.sha256")" -eq 28 ] || fail "$(wc -l <"$logs/sent.sha256") files to send, not 28"
diff "$logs/sent.sha256" "$logs/arrived.sha256" || fail "what arrived differs"
is "the owner of what arrived" "$(find "$work/b/incoming" -type f ! -uid 9470 | wc -l) others" "0 others"

say "stopping the containers"
docker_ rm -f client >/dev/null
stopped node-a
stopped node-b
# A new container with the volume of the old one is the same node.
docker_ logs node-a >"$logs/node-a.log" 2>&1
docker_ rm node-a >/dev/null
is "the fingerprint that the volume keeps" "$(fingerprint a)" "$fingerprint_a"
