# `make` lists the targets. They use a local cluster below .local. With CLUSTER=kind they use a cluster that kind makes with Docker, and with
# CLUSTER=external the cluster of KUBECONFIG.
CLUSTER ?= local
SUITE   ?= main
MINUTES ?= 30
# The operator's program in the local image. If it does not exist yet, the demo builds it and all dependencies without optimization.
DEMO    ?= $(filter demo,$(MAKECMDGOALS))
BINARY  ?= target/$(if $(DEMO),$(if $(wildcard target/debug/redlock),debug,quick),debug)/redlock
# Suites that measure need an optimized operator, and optimized tests.
OPTIMIZED := $(if $(filter failover gate latency scale sizing tenants,$(ONLY) $(SUITE)),--config dev/optimized.toml)
PROFILE := $(word 2,$(subst /, ,$(BINARY)))
# With CLUSTER=kind, dev/kind.sh makes a cluster, which is then used like an external one.
ifeq ($(CLUSTER),kind)
  override CLUSTER := external
  KIND  := yes
  IMAGE := redlock-operator:dev
  export KUBECONFIG := $(CURDIR)/.local/kind/kubeconfig
endif
export CLUSTER IMAGE

ifeq ($(CLUSTER),local)
  export KUBECONFIG := $(CURDIR)/.local/kubeconfig
endif
export PATH := $(CURDIR)/.local/bin:$(PATH)

# If rustup cannot fetch the toolchain that rust-toolchain.toml pins, the stable toolchain of the machine builds.
ifneq ($(shell cargo --version >/dev/null 2>&1 && echo found),found)
  export RUSTUP_TOOLCHAIN ?= stable
endif

.DEFAULT_GOAL := help
.PHONY: help up optimized setup program build cluster image load deploy down status demo demo-clusters check layers test e2e prove bench book figures release clean distclean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo "  CLUSTER=kind       use a cluster that kind makes with Docker, instead of a local one"
	@echo "  CLUSTER=external   use the cluster of KUBECONFIG instead of a local one (IMAGE=repository:tag)"
	@echo "  ONLY=core          bench without the lock clients in other languages (SECONDS_PER_CELL=3)"
	@echo "  ONLY=failover      bench the time to the next leader; ONLY=scale: the cost of held locks"
	@echo "  WRITE=1            bench writes its figures into docs/"

up: deploy ## Start the cluster, build and install the operator
ifneq ($(KIND)$(filter local,$(CLUSTER)),)
	@echo
	@echo 'Ready. To use it from this shell:'
	@echo '  export KUBECONFIG=$(CURDIR)/.local/$(if $(KIND),kind/)kubeconfig'
endif

# Prints Cargo's options for a suite. The script that runs the suite reads them.
optimized:
	@echo $(OPTIMIZED)

ifeq ($(CLUSTER),local)
setup: ## Bring what the cluster needs onto this machine (5 minutes the first time)
	@dev/setup.sh

# One command builds the program and the end-to-end tests, so that dependencies are built once, with the features of both. The demo needs no
# tests.
program:
	cargo build $(OPTIMIZED) --workspace --locked --bin redlock $(if $(filter debug,$(PROFILE)),$(if $(DEMO),,--test e2e),--profile $(PROFILE))

# Builds Kubernetes and the operator at the same time, because each of the two leaves a core idle while it links.
build:
	@$(MAKE) --no-print-directory -j2 setup program DEMO=$(DEMO) BINARY=$(BINARY)

cluster: setup ## Start the cluster alone
	@dev/image.sh valkey pause coredns
	@dev/cluster.sh up

image: program ## Build the operator and write its image and that of members
	@dev/image.sh valkey operator=$(BINARY)

load: build cluster image
	@dev/cluster.sh load .local/images/valkey.tar .local/images/operator.tar

deploy: load ## Install or upgrade the operator's chart
	@dev/deploy.sh

down: ## Stop the cluster; what was built stays
	@[ ! -e .local/second/run ] || dev/clusters.sh two down
	@dev/cluster.sh down

status: ## Show what runs
	@dev/cluster.sh status
else
ifdef KIND
setup cluster image load:
	@dev/kind.sh up

deploy: load
	@dev/deploy.sh

down:
	@dev/kind.sh down
else
setup cluster image load:
	@echo 'CLUSTER=external: nothing to do for $@'

deploy:
	@dev/deploy.sh

down:
	helm uninstall redlock-operator --namespace redlock-system --ignore-not-found --wait
endif

status:
	kubectl get nodes
	kubectl -n redlock-system get pods
endif

demo: up ## Show the operator at work
	@dev/demo.sh

demo-clusters: up ## Show one lock in two clusters; stops the second one at the end
	@dev/e2e.sh clusters in_two_clusters_follows; status=$$?; dev/clusters.sh down; exit $$status

check: ## The quick part of test: format, lints, unit tests, documents
	cargo fmt --all --check
	cargo clippy --workspace --locked --quiet --all-targets -- -D warnings
	cargo clippy --workspace --locked --quiet --test e2e --test operator -- -D warnings
	cargo test --workspace --locked --quiet --lib --test docs --test layers --test words --test workspace --test generated

layers: ## Print the crates and their layers; UPDATE=1 writes them into ARCHITECTURE.md
	@cargo test --workspace --locked --quiet --test layers picture -- --nocapture

test: ## Run the tests
	@dev/test.sh

e2e: up ## Run a suite against the cluster (SUITE=main)
	@dev/e2e.sh $(SUITE)

prove: ## Models, simulation, odd input, faults on the cluster (MINUTES=30)
	@dev/prove.sh $(MINUTES)

book: ## Build the pages of docs/ as a book, in target/book
	@dev/book.sh

figures: ## Measure the published program against its bounds: size, start, list, memory
	@dev/figures.sh

release: ## Everything that a release publishes, in dist/
	@packaging/release.sh

# The program prints the names of lock clients that cannot be installed here, and measures the others.
ifeq ($(ONLY),failover)
bench: up ## Measure how soon the next leader follows one that was killed
	@dev/e2e.sh failover
	@$(if $(filter 1,$(WRITE)),UPDATE=1 cargo test --workspace --locked --quiet --test generated figures_of_failovers)
else ifeq ($(ONLY),scale)
bench: up ## Measure what numbers of held locks cost
	@dev/e2e.sh sizing
	@$(if $(filter 1,$(WRITE)),UPDATE=1 cargo test --workspace --locked --quiet --test generated the_cost_of_locks)
else
bench: ## Measure the library against a floor and other lock clients (ONLY=core)
ifeq ($(ONLY),)
	@for name in redsync node-redlock pottery redisson; do dev/clients.sh $$name || :; done
endif
	cargo run --release --locked --package redlock-bench
endif

clean: down ## down, and remove .local; leaves target/ (see distclean)
	rm -rf .local
	@echo 'target/ is left; `make distclean` removes it too.'

distclean: clean ## clean, and cargo clean
	cargo clean
