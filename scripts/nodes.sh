# Sourced: what the scripts that start nodes share. They set $mover.

# free_port prints a TCP port of 127.0.0.1 that nothing listens on, below the
# range from which the kernel gives ports to connections.
taken_ports=" "
free_port() {
	local port
	for _ in $(seq 200); do
		port=$((20000 + RANDOM % 10000))
		case $taken_ports in *" $port "*) continue ;; esac
		if ! (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
			taken_ports+="$port "
			free_port_result=$port
			return 0
		fi
	done
	echo "no free port found between 20000 and 29999" >&2
	return 1
}

# wait_ready PID URL LOG waits until the node answers, or says why it does not.
wait_ready() {
	local pid=$1 url=$2 log=$3
	for _ in $(seq 300); do
		if curl -fsS -o /dev/null --max-time 2 "$url/readyz" 2>/dev/null; then
			return 0
		fi
		if ! kill -0 "$pid" 2>/dev/null; then
			echo "the node ended instead of starting:" >&2
			tail -n 20 "$log" >&2
			return 1
		fi
		sleep 0.1
	done
	echo "the node does not answer on $url/readyz after 30 s:" >&2
	tail -n 20 "$log" >&2
	return 1
}

# stop_node PID stops a node started here: politely, then not.
stop_node() {
	local pid=$1
	kill -TERM "$pid" 2>/dev/null || return 0
	for _ in $(seq 110); do
		kill -0 "$pid" 2>/dev/null || { wait "$pid"; return $?; }
		sleep 0.1
	done
	echo "node $pid did not stop within 11 s; killing it" >&2
	kill -KILL "$pid" 2>/dev/null || true
	wait "$pid" || true
	return 1
}

# json_field NAME prints the first value of NAME in the JSON on standard input;
# the API writes names once at the level that matters here.
json_field() {
	tr -d '\n' | grep -o "\"$1\": *\(\"[^\"]*\"\|[0-9.eE+-]*\|null\)" | head -n 1 | sed 's/^"[^"]*": *//; s/^"//; s/"$//'
}
