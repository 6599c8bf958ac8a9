#!/bin/bash
# Everything that needs no guest. In CI (CI=true) a skipped test that is not in
# scripts/skips.txt is a failure.
set -euo pipefail
. scripts/step.sh
scripts/lint.sh

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# One build of the reporter, not one for each use.
go build -buildvcs=false -o "$work/testreport" ./scripts/testreport

race() {
	# -json, because it alone tells a skipped test from one that ran.
	go test -race -count=1 -timeout 8m -json ./... >"$work/race.json" || true
	"$work/testreport" run "$work/race.json"
}

# Allocation counts mean nothing under the race detector, so the packages that
# count them run again without it.
allocation_tests() {
	local dirs
	dirs=$(grep -rl --include='*_test.go' 'AllocsPerRun' . | xargs -r -n1 dirname | sort -u)
	[ -n "$dirs" ] || { echo "no test counts allocations"; return 1; }
	# shellcheck disable=SC2086 # one word per directory
	go test -count=1 -timeout 4m -json $dirs >"$work/plain.json" || true
	"$work/testreport" run "$work/plain.json"
}

# Without the race detector, which takes ten times as long and has one goroutine
# to look at; the race run has a few of the same seeds.
simulation() {
	MOVER_SIM_SEEDS=3000 go test -count=1 -timeout 8m -v -run '^TestSimulation$' ./engine
}

# Without the race detector, which is too slow for as many.
many_jobs() {
	MOVER_MANY_JOBS=10000 go test -count=1 -timeout 8m -v -run '^TestManyJobs$' ./cmd/mover
}

# Each is a build of the engine's tests and a run up to the seed that finds it.
planted_faults() {
	MOVER_SIM_PLANTED=1 go test -count=1 -timeout 15m -v -run '^TestPlantedFaults$' ./engine
}

# The hot paths, listed in scripts/hot-paths.txt. A thousand rounds, so that a
# stray allocation of the runtime rounds down to none.
hot_paths() {
	local packages names
	packages=$(awk '!/^#/ && NF { print $1 }' scripts/hot-paths.txt | sort -u)
	names=$(awk '!/^#/ && NF { print $2 }' scripts/hot-paths.txt | sort -u | paste -sd '|')
	# shellcheck disable=SC2086 # one word per package
	go test -run '^$' -bench "^($names)\$" -benchmem -benchtime 1000x -timeout 4m $packages >"$work/hot.txt" ||
		{ cat "$work/hot.txt"; return 1; }
	"$work/testreport" hot scripts/hot-paths.txt "$work/hot.txt"
}

step "tests, property tests, fuzz seeds, simulation and real processes under the race detector" race
step "allocation tests without it" allocation_tests
step "hot paths do not allocate" hot_paths
step "3,000 seeds of the simulation" simulation
step "the simulation finds every planted fault" planted_faults
step "ten thousand jobs leave nothing behind" many_jobs
step "nothing skipped that should run" "$work/testreport" skips scripts/skips.txt "$work/race.json" "$work/plain.json"
echo "test: all passed in $SECONDS s"
