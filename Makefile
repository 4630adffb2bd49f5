# Commands for people and for the build server. `make` alone lists them.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# Always the whole workspace: with a part of it, cargo would choose other features and build the dependencies again.
BUILD := echo "build: the programs (some minutes the first time)"; cargo build --workspace --bins

# What the demo runs, and nothing else.
BUILD_PROGRAMS := echo "build: the two programs (some minutes the first time)"; cargo build --workspace --bin deskgate --bin deskgate-gateway

.PHONY: help
help: ## List these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: setup
setup: ## Install what building and testing needs (Debian packages)
	@scripts/setup test

.PHONY: demo
demo: ## From nothing to a finished run, gateway built in; stays up until Ctrl-C
	@scripts/setup demo
	@$(BUILD_PROGRAMS)
	@exec scripts/demo builtin

.PHONY: demo-remote
demo-remote: ## The same with gateway and agent as two processes, paired over SSH
	@scripts/setup demo
	@$(BUILD_PROGRAMS)
	@exec scripts/demo remote

.PHONY: clean-demo
clean-demo: ## Remove the demo's files; stop the demo first
	rm -rf target/demo

.PHONY: test
test: ## Run every test
	@scripts/setup test
	@scripts/test

.PHONY: check
check: ## Format, lints, documentation, walls between rooms, dependencies
	@scripts/setup test
	@scripts/check

.PHONY: contract-long
contract-long: ## Twenty thousand made-up requests, compared with the OpenAPI document (a quarter of an hour)
	@scripts/setup test
	@$(BUILD)
	@cargo test --workspace --test contract -- --ignored --nocapture

.PHONY: files-long
files-long: ## A thousand files there and back while lines are cut and programs killed (some minutes); SEED=n FILES=n
	@scripts/setup test
	@$(BUILD)
	@cargo test --workspace --test promises files_long:: -- --ignored --nocapture

.PHONY: plans
plans: ## What a run reads behind a million finished ones, with statistics of an empty and of a full queue (some minutes)
	@scripts/setup test
	@cargo test --workspace --test api queue:: -- --ignored --nocapture

.PHONY: model
model: ## Explore the model of the protocol for one fault more than the tests do (some minutes, 6 GiB)
	@cargo test --release -p deskgate-gateway --test api protocol:: -- --ignored --nocapture

.PHONY: screens
screens: ## A picture of every state of every management page in target/screens: light, dark, narrow
	@scripts/setup test
	@$(BUILD)
	@rm -rf target/screens && mkdir -p target/screens
	@DESKGATE_SCREENS="$$PWD/target/screens" cargo test --workspace --test pages
	@echo "screens: $$(ls target/screens | wc -l) pictures in target/screens"

.PHONY: release
release: ## Both programs, optimised, in target/release (some minutes)
	@scripts/setup demo
	@cargo build --release --workspace --bin deskgate --bin deskgate-gateway

# As they are in packages, for these are what is used.
.PHONY: bench
bench: ## Measure; a table on screen and target/bench/results.json
	@scripts/setup test
	@cargo build --profile dist --workspace --bin deskgate --bin deskgate-gateway --bin bench
	@exec "$${CARGO_TARGET_DIR:-target}/dist/bench"

.PHONY: scan
scan: ## The gateway's SSH and TLS listeners before ssh-audit and sslscan
	@scripts/setup test
	@$(BUILD)
	@scripts/scan

.PHONY: upgrade-trial
upgrade-trial: ## From an earlier commit's programs (COMMIT=…) to these and back, with runs under way
	@scripts/setup test
	@$(BUILD)
	@scripts/upgrade-trial $(COMMIT)

# Without the programs that a pass does not need; with the features of the whole workspace, as above.
FAULTS_BUILD := cargo build --workspace --bin deskgate --bin deskgate-gateway --bin faults --features deskgate/crash-points

.PHONY: faults
faults: ## Break everything on purpose, and judge by its witnesses; FAULTS=n SEED=s KINDS=F1,F5,… RUNS=n
	@scripts/setup test
	@$(FAULTS_BUILD)
	@exec "$${CARGO_TARGET_DIR:-target}/debug/faults"

.PHONY: hostile
hostile: ## A hostile gateway and a hostile device against the real programs; SIDE=gateway|device ONLY=text
	@scripts/setup test
	@cargo build --workspace --bin deskgate --bin deskgate-gateway --bin hostile
	@exec "$${CARGO_TARGET_DIR:-target}/debug/hostile"

.PHONY: load
load: ## Much at once, and whether anything was lost; LEVELS=L1,L3,L4,L6 LOAD_SECONDS=n RATE=n DEVICES=n RUNS=n
	@scripts/setup test
	@cargo build --release --workspace --bin deskgate --bin deskgate-gateway --bin load
	@exec "$${CARGO_TARGET_DIR:-target}/release/load"

.PHONY: fuzz
fuzz: ## Throw anything at whatever reads what comes in, a minute for each target; FUZZ=frames,keys SECONDS=n
	@scripts/setup test
	@FUZZ_SECONDS="$(SECONDS)" exec scripts/fuzz

.PHONY: faults-self-test
faults-self-test: ## Plant known bugs and demand that the fault harness catches each; PLANTED=03 for one
	@scripts/setup test
	@scripts/faults-self-test $(PLANTED)

.PHONY: faults-points
faults-points: ## Let programs die at every named point three times, for a quarter of an hour
	@scripts/setup test
	@$(FAULTS_BUILD)
	@exec "$${CARGO_TARGET_DIR:-target}/debug/faults" --points

.PHONY: faults-long
faults-long: ## The same with every kind of fault there is, for half an hour
	@scripts/setup test
	@$(FAULTS_BUILD)
	@exec "$${CARGO_TARGET_DIR:-target}/debug/faults" --long

.PHONY: docs
docs: ## The documentation as a book in target/book, with every link checked
	@scripts/docs

.PHONY: deb
deb: ## Debian packages of both halves in target/deb
	@scripts/setup deb
	@cargo build --profile dist --workspace --bin deskgate --bin deskgate-gateway
	@scripts/deb

.PHONY: trial
trial: ## Install the packages in a clean Debian of its own, and use them as the documentation says (root; after make deb)
	@scripts/trial-install

.PHONY: trial-container
trial-container: ## Build the container, and use the compose file as the documentation says (root; a Docker daemon of its own)
	@$(BUILD)
	@scripts/trial-container
