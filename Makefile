# Targets anyone can call. Each checks Go, installs the Debian packages it needs
# (naming them, without questions, with sudo only when not root) and does one
# thing. `make` lists them.

SHELL := /bin/bash
# A Go installed as go.dev/doc/install says is found even if PATH lacks it.
export PATH := $(PATH):/usr/local/go/bin
# The toolchain that is there, or an error that says so: no silent download.
export GOTOOLCHAIN := local

OUT := out
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo unversioned)
# -buildvcs=false: a source tree owned by another user, or an archive, builds too.
BUILD := go build -trimpath -buildvcs=false -ldflags "-X main.version=$(VERSION)"

.PHONY: help need-go build demo run test bench lab lab-full lab-shell lab-bench sim torture nightly lint docker docker-test clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1|\2/p' Makefile | column -t -s '|'

need-go:
	@scripts/need-go.sh

# libibverbs-dev has the header that verbs/ibv is compiled against; the library
# itself is opened at run time.
build: need-go ## build out/mover
	@scripts/need-packages.sh gcc libc6-dev libibverbs-dev
	@mkdir -p $(OUT)
	$(BUILD) -o $(OUT)/mover ./cmd/mover

demo: need-go ## two nodes on this host move 2 GiB, verified; about a minute
	@scripts/need-packages.sh curl coreutils
	@$(MAKE) --no-print-directory build
	@scripts/demo.sh $(OUT)/mover

run: need-go ## start one node with config.yaml, its state in out/run
	@scripts/need-packages.sh curl
	@$(MAKE) --no-print-directory build
	@scripts/run.sh $(OUT)/mover

test: need-go ## everything that needs no guest: lint, unit, property, simulation, real processes, races
	@scripts/need-packages.sh gcc libc6-dev libibverbs-dev git
	@scripts/test.sh

# SEED=x replays one. docs/simulation.md.
sim: need-go ## the simulation: SEEDS=n runs of the data path against everything that goes wrong (2000)
	@MOVER_SIM_SEEDS=$(or $(SEEDS),2000) MOVER_SIM_SEED=$(SEED) \
		go test -buildvcs=false -count=1 -timeout 24h -v -run '^TestSimulation$$' ./engine

# SEED=x draws the same again, RACE=1 has the race detector watch. docs/torture.md.
torture: need-go ## two nodes are killed, stopped, cut off and filled up for MINUTES=n (2), and lose nothing
	@scripts/need-packages.sh gcc libc6-dev libibverbs-dev
	@mkdir -p $(OUT)/torture
	@$(BUILD) $(if $(RACE),-race) -o $(OUT)/torture/mover ./cmd/mover
	@go build -buildvcs=false -o $(OUT)/torture/torture ./torture
	@$(OUT)/torture/torture -mover $(OUT)/torture/mover -out $(OUT)/torture -minutes $(or $(MINUTES),2) \
		-seed $(or $(SEED),0) $(if $(RACE),-race)

nightly: need-go ## what takes too long for every change: every failing call of a transfer, 100,000 runs of the simulation, an hour of torture
	@MOVER_SWEEP=all go test -buildvcs=false -count=1 -timeout 24h -v -run '^TestSweep(File|Tree|Source)$$' ./fileio
	@$(MAKE) --no-print-directory sim SEEDS=$(or $(SEEDS),100000)
	@$(MAKE) --no-print-directory torture MINUTES=$(or $(MINUTES),60)

need-lab: build
	@scripts/need-packages.sh $$(cat lab/packages.txt)

# The limit only ends what hangs: it takes some seven minutes.
lab: need-lab ## two virtual hosts move files over kernel RDMA, with faults; what CI runs, within 10 minutes
	@go run -buildvcs=false ./lab -limit 15m run

lab-full: need-lab ## all scenarios of the lab
	@go run -buildvcs=false ./lab -full run

lab-shell: need-lab ## a shell in each of the two virtual hosts
	@go run -buildvcs=false ./lab shell

lab-bench: need-lab ## mover against ib_write_bw, ib_send_lat and rcopy in the virtual hosts; writes out/lab-bench.json
	@go run -buildvcs=false ./lab bench

lint: need-go ## the checks of `make test` that run nothing
	@scripts/need-packages.sh git
	@scripts/lint.sh

bench: need-go ## compare with iperf3, rsync, GridFTP and cp; writes out/bench.json
	@scripts/need-packages.sh $$(cat bench/packages.txt)
	@mkdir -p $(OUT)
	go run -buildvcs=false ./bench/compare

docker: ## build the container image mover:VERSION
	@scripts/docker-build.sh $(VERSION)

# Debian's engine only where there is none: it would replace another vendor's.
docker-test: need-go ## build the image without network and let two containers move files; needs root
	@command -v dockerd >/dev/null || scripts/need-packages.sh docker.io
	@scripts/need-packages.sh debootstrap debian-archive-keyring util-linux tar
	@scripts/docker-test.sh $(VERSION)

clean: ## remove what the other targets made
	rm -rf $(OUT)
