# Sourced: step NAME COMMAND... runs a step, says how it ended and how long it
# took, and ends the script if it failed.
step() {
	local name=$1 begin=$SECONDS
	shift
	echo "== $name"
	if "$@"; then
		echo "   ok, $((SECONDS - begin)) s"
	else
		echo "   FAILED after $((SECONDS - begin)) s: $name" >&2
		exit 1
	fi
}
