# Everything that is built or run stays in bin/, dist/ and .local/. Needed: Go, git, make, and gcc for the
# race detector.
SHELL := /usr/bin/env bash
.SHELLFLAGS := -o errexit -o nounset -o pipefail -c
.DEFAULT_GOAL := help

# The local cluster of up, run and down.
NAME ?= lockstep
NODES ?= 16
ZONES ?= 2
RACKS ?= 4
GPUS ?= 8
CPU ?= 32
MEMORY ?= 256Gi
KUBE ?=

# test-versions: beside the newest, on which make test runs everything; and which part of the scenarios.
VERSIONS ?= 1.36 1.35
PART ?= 1/1

# test: which part of the scenarios of order runs while all cores are busy, such as 1/3.
BUSY ?=

# bench: which micro-benchmarks, and how often each, for benchstat. The end-to-end benchmark takes ARGS.
BENCH ?= .
COUNT ?= 6

# Our scheduler is a kube-scheduler: its feature gates follow the version that is stamped into it, so
# that has to be Kubernetes' own, with ours as build metadata.
KUBE_VERSION := v1.37.2
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
STAMP := k8s.io/component-base/version
LDFLAGS := -s -w \
	-X $(STAMP).gitVersion=$(KUBE_VERSION)+lockstep-$(VERSION) \
	-X $(STAMP).gitMajor=1 -X $(STAMP).gitMinor=37 \
	-X $(STAMP).gitCommit=$(shell git rev-parse HEAD 2>/dev/null || echo unknown)

# One binary per command: cmd/kubectl-X is bin/kubectl-X, any other cmd/X is bin/lockstep-X.
COMMANDS := $(patsubst cmd/%/main.go,%,$(wildcard cmd/*/main.go))

CLUSTER := go run ./hack/cluster

# release: for which platforms, and what stands before the names of the images in install.yaml.
PLATFORMS ?= linux/amd64,linux/arm64
REGISTRY ?=

# chaos: what the plan is made from, how long gangs come and faults happen, whether they are in queues (1), and whose
# scheduler it is: a binary, or stock.
SEED ?= 1
MINUTES ?= 5
QUEUES ?= 0
RESERVATIONS ?= 0
MOVES ?= 0
BADINPUT ?= 1
# soak: how long.
HOURS ?= 8
SCHEDULER ?= bin/lockstep-scheduler

# up and chaos: how many nodes are run by kubelets, in place of those of KWOK.
KUBELETS ?=

##@ Try it

.PHONY: demo
demo: COMMANDS := scheduler controller descheduler
demo: build ## Tell the story of a few gangs on a local cluster
	go run ./hack/demo

.PHONY: up
up: ## Start a local cluster (NAME, NODES or KUBELETS, ZONES, RACKS, GPUS, CPU, MEMORY; KUBE=1.35 or 1.36: an older Kubernetes)
	@$(CLUSTER) up --name $(NAME) --kubernetes '$(KUBE)' --nodes $(or $(KUBELETS),$(NODES)) $(if $(KUBELETS),--kubelets) --zones $(ZONES) --racks $(RACKS) \
		--gpus $(GPUS) --cpu $(CPU) --memory $(MEMORY)

.PHONY: run
run: has-cluster build ## Run the scheduler and the controller against the local cluster, until Ctrl-C (FAIRSHARE=1, PAGE=1, DESCHEDULER=1)
	@$(CLUSTER) run --name $(NAME) $(if $(filter 1,$(FAIRSHARE)),--fairshare) $(if $(filter 1,$(PAGE)),--page) \
		$(if $(filter 1,$(DESCHEDULER)),--descheduler) -- $(ARGS)

.PHONY: has-cluster
has-cluster:
	@test -f .local/clusters/$(NAME)/kubeconfig.yaml || \
		{ echo "There is no cluster $(NAME). Start it first: make up$(if $(filter-out lockstep,$(NAME)), NAME=$(NAME))"; exit 1; }

.PHONY: down
down: ## Stop the local cluster and remove its files
	@$(CLUSTER) down --name $(NAME)

##@ Build

# Each build has a folder of its own, so that two at once do not take each other's binaries. In it are those of the last
# build: what is up to date is not linked again. The compiler collects no garbage below 2 GiB, which saves CPU.
.PHONY: build
build: ## Build the commands into bin/
	@echo "building bin/ ($(COMMANDS))"
	@mkdir -p bin; next=$$(mktemp -d bin/.next.XXXXXX); trap 'rm -rf "$$next"' EXIT; \
	name() { case $$1 in kubectl-*) echo $$1;; *) echo lockstep-$$1;; esac; }; \
	for command in $(COMMANDS); do ln "bin/$$(name $$command)" "$$next/$$command" 2> /dev/null || true; done; \
	GOGC=off GOMEMLIMIT=2GiB go build -buildvcs=false -ldflags '$(LDFLAGS)' -o "$$next/" $(COMMANDS:%=./cmd/%); \
	for command in $(COMMANDS); do \
		test "$$next/$$command" -ef "bin/$$(name $$command)" || mv -f "$$next/$$command" "bin/$$(name $$command)"; \
	done

.PHONY: control-plane
control-plane: ## Build etcd, kube-apiserver, and the rest that tests need of Kubernetes (some 6 minutes the first time)
	@$(CLUSTER) build

.PHONY: generate
generate: ## Write deep copies, defaults, conversions, CRDs, policies and pictures of terminals
	hack/generate.sh

.PHONY: release
release: ## Make binaries, the context of the images, chart, install.yaml, SBOMs and checksums in dist/ (VERSION, PLATFORMS, REGISTRY)
	go run ./hack/release -version '$(VERSION)' -ldflags '$(LDFLAGS)' -platforms '$(PLATFORMS)' -registry '$(REGISTRY)'

.PHONY: clean
clean: ## Stop all local clusters; remove bin/, dist/ and .local/
	@$(CLUSTER) down --all
	rm -rf bin dist .local

##@ Check

.PHONY: verify
verify: ## Run all checks that are no tests: format, linters, imports, generated files
	@hack/verify.sh

.PHONY: test
test: test-unit test-e2e ## Run all tests

.PHONY: test-unit
test-unit: ## Run the tests that need no cluster; those of plugins and pkg with the race detector
	go test ./apis/... ./cmd/... ./hack/...
	go test -race ./pkg/... ./plugins/...

# The scenarios keep the machine busy. The other packages, which have clusters of their own, mostly wait.
.PHONY: test-e2e
test-e2e: build control-plane ## Run the tests that need a cluster
	go test -count=1 -timeout 60m ./test/e2e $(if $(BUSY),-busy $(BUSY))
	go test -count=1 -p 3 -timeout 60m $$(go list ./test/... | grep -v '/test/e2e$$')

# No part of test: it takes 12 minutes on two cores when the operators are compiled, and longer the first time.
.PHONY: test-operators
test-operators: ## Build the operators of training jobs, as they come, and run their jobs with lockstep-scheduler
	go test -count=1 -timeout 60m ./test/operators -operators -v $(ARGS)

# No part of test: it compiles the API servers of the older versions, which takes some 10 minutes on two cores.
.PHONY: test-versions
test-versions: build control-plane ## Run scenarios of each part, make run, the page and kubectl gang on each Kubernetes that is served (VERSIONS='1.36 1.35')
	for version in $(VERSIONS); do \
		go test -count=1 -timeout 60m ./test/e2e -run 'TestVersions|TestMakeRun' -kubernetes $$version -versions-part $(PART) -v $(ARGS); \
		go test -count=1 ./test/install -run TestPools -kubernetes $$version -v; \
	done

# No part of test: it builds another commit. Without FROM that is the last tag.
UPGRADE_FROM = $(or $(FROM),$(shell git describe --tags --abbrev=0 2>/dev/null))
.PHONY: test-upgrade
test-upgrade: has-from build control-plane ## Go from another commit to this checkout and back while gangs run and wait (FROM=COMMIT)
	go test -count=1 ./test/install/upgrade -v -from '$(UPGRADE_FROM)' $(ARGS)

.PHONY: has-from
has-from:
	@test -n '$(UPGRADE_FROM)' || \
		{ echo "There is no tag to upgrade from. Name a commit: make test-upgrade FROM=COMMIT"; exit 1; }

# The order in which pods start, and who makes way, do not depend on how fast the machine is.
.PHONY: test-busy
test-busy: build control-plane ## Run scenarios of order, queues and preemption while all cores are busy
	go test -count=1 -timeout 60m ./test/e2e -run '$(or $(RUN),TestBusy)' -busy $(or $(BUSY),1/1) -v $(ARGS)

# No part of test: it compiles kubelet, and starts a control plane for each scenario.
.PHONY: test-kubelets
test-kubelets: build control-plane ## Run scenarios of each part on nodes with kubelets, which refuse pods that do not fit
	go test -count=1 -timeout 60m ./test/e2e -run '$(or $(RUN),TestKubelets)' -kubelets -v $(ARGS)

# Tests ask in some of them; in all it takes 20 minutes on two cores.
.PHONY: test-forecasts
test-forecasts: build control-plane ## Ask kubectl gang whatif in all scenarios what pods will come to, and compare
	go test -count=1 -timeout 60m ./test/e2e -run TestForecasts -forecasts -v $(ARGS)

# No part of test: it needs a Chromium. ARGS='-args -pictures "$PWD/docs/pictures"' takes the pictures of docs/page.md.
.PHONY: test-page
test-page: ## Look at the page of lockstep-controller in a headless Chromium, which has to be installed
	cd test/webpage/browser && go test -count=1 -v . $(ARGS)

# No part of test, which runs the first 20. Each takes a fraction of a second.
.PHONY: test-histories
test-histories: COUNT := 1000
test-histories: ## Make up what happens to small clusters, and judge what the scheduler does (SEED, COUNT; ARGS='-history FILE')
	go test -count=1 -timeout 0 ./test/histories -v -seed $(SEED) -histories $(COUNT) $(ARGS)

.PHONY: chaos
chaos: build control-plane ## Run gangs under faults and check what has to hold (SEED, MINUTES, QUEUES=1, RESERVATIONS=1, MOVES=1, KUBELETS=20, BADINPUT=0, SCHEDULER=stock)
	go run ./test/chaos -seed $(SEED) -minutes $(MINUTES) -queues=$(QUEUES) -reservations=$(RESERVATIONS) -moves=$(MOVES) -badinput=$(BADINPUT) -kubelets=$(or $(KUBELETS),0) -scheduler $(SCHEDULER) $(ARGS)

.PHONY: soak
soak: build control-plane ## Run gangs at a steady load for HOURS, a fault each minute, and check that nothing grows (SEED, MOVES=1)
	go run ./test/chaos -seed $(SEED) -hours $(HOURS) -queues -reservations -moves=$(MOVES) -badinput=$(BADINPUT) -scheduler $(SCHEDULER) $(ARGS)

.PHONY: bench
bench: build control-plane ## Run benchmarks (BENCH, COUNT; ARGS=-short for a quick look), against the stock scheduler too
	@mkdir -p .local/bench
	go test -run '^$$' -bench '$(BENCH)' -benchmem -count $(COUNT) -p 1 -timeout 120m ./pkg/... ./plugins/... \
		| tee .local/bench/latest.txt
	go run ./test/benchmark -scheduler bin/lockstep-scheduler $(ARGS) | tee -a .local/bench/latest.txt
	"$$($(CLUSTER) build benchstat)" -col /scheduler .local/bench/latest.txt

.PHONY: bench-upstream
bench-upstream: build control-plane ## Run scheduler_perf's workloads of gangs with native gangs and ours in turn (ARGS='-run Preemption -rounds 2')
	go run ./test/benchmark -upstream -scheduler bin/lockstep-scheduler $(ARGS)

.PHONY: help
help: ## Show this list
	@awk 'BEGIN { FS = ":.*## " } \
		/^##@ / { printf "\n%s\n", substr($$0, 5) } \
		/^[a-z0-9-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
