# `make run` measures what virtualization costs on this host, `make test` checks the
# whole project. Both install and build what they need first.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

DIST := target/dist
BUILT := target/x86_64-unknown-linux-gnu
# Programs that run inside the measured machine, and those that check it.
GUEST_PROGRAMS := trapline-vmm trapline-agent trapline-conformance trapline-floor \
	trapline-probe trapline-switch trapline-symbols
SKIPS := $(CURDIR)/target/skips.txt

# Tests wait for the machines that they start: one more at a time than there are CPUs.
export RUST_TEST_THREADS ?= $(shell echo $$(($$(nproc) + 1)))
# Tests use the release profile with changes for our own crates: dependencies are compiled once.
# All machines of the tests fit in the limit of snapshots: a machine that is removed has to be booted again.
# Always of the whole workspace: dependencies of fewer packages have fewer features, and are compiled again.
TEST := TRAPLINE_SKIPS=$(SKIPS) TRAPLINE_PARTS=$(CURDIR)/$(DIST) TRAPLINE_CACHE_LIMIT=16G \
	cargo --config tests/profile.toml test --release --workspace
# Random inputs in great numbers need optimization.
FUZZ := TRAPLINE_SKIPS=$(SKIPS) TRAPLINE_PARTS=$(CURDIR)/$(DIST) cargo test --release

# Test programs with ignored tests: those that boot whole machines, and (with their packages) those that take
# millions of random inputs, whose short forms every test run has.
SLOW_TESTS := --test vmm --test end_to_end
FUZZ_TESTS := trapline-emulation:random trapline-monitor:all trapline-process:hostile trapline-abi:stream \
	trapline-protocol:damaged trapline-switch:fuzz trapline-switch:forwarding

.PHONY: help setup setup-tests build arm64 run test test-all test-slow test-fleet test-roots check deny baseline compilers fixtures docs bench \
	fuzz power endure gate-trials dist image clean

help: ## Show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1\t\2/p' Makefile | expand -t 18

setup: ## Install missing packages of the distribution that running needs
	@scripts/setup.sh

setup-tests: ## Install those that the tests need, too
	@scripts/setup.sh tests

build: setup ## Build every part into target/dist
	@scripts/build.sh $(BUILT) $(DIST) $(GUEST_PROGRAMS)

arm64: build ## Build what sim-arm64 needs, too (downloads a compiler of 190 MB, once)
	@scripts/arm64.sh $(DIST)

run: build ## Measure everything this machine offers (a minute, once built)
	@$(DIST)/trapline run

check: ## Check format, lints, and with cargo-deny licences and sources of dependencies
	cargo fmt --all --check
	cargo clippy --release --workspace --all-targets -- -D warnings
	cargo clippy --release --workspace --test end_to_end -- -D warnings
	cargo check --quiet --release --manifest-path vmm/monitor/fuzz/Cargo.toml --target-dir target --locked
	@if command -v cargo-deny > /dev/null; then cargo deny check bans licenses sources; \
	    else echo "check: licences are not checked: cargo-deny is not installed"; fi

deny: ## Check licences, sources and known vulnerabilities of dependencies (needs cargo-deny and a network)
	cargo deny check

test: setup-tests build arm64 ## Run all tests but the slow ones; prints what was skipped and why
	@rm -f $(SKIPS)
	$(TEST) --tests --no-run
	$(TEST) --test end_to_end --no-run
	@scripts/beside.sh target/tests.log "$(TEST) --tests --no-fail-fast" "$(TEST) --test end_to_end --no-fail-fast"
	$(TEST) --doc
	@scripts/skips.sh $(SKIPS)
	@echo; echo "Slow tests, left out here (make test-all runs them, too):"
	@$(TEST) --quiet $(SLOW_TESTS) -- --list --ignored | sed -n 's/\(.*\): test$$/  \1/p'

test-all: test test-slow ## Run all tests (an hour, with building)

test-slow: setup-tests build arm64 ## Run the slow tests that `make test` leaves out
	@rm -f $(SKIPS)
	$(TEST) $(SLOW_TESTS) --no-fail-fast -- --ignored
	@scripts/skips.sh $(SKIPS)

test-fleet: setup-tests build ## Run a plan in a Slurm of three nodes, one of which dies, and kill workers (minutes, as root)
	$(TEST) --test end_to_end -- --ignored --nocapture fleet::

test-roots: ## Check README, tests and environments on clean systems (RELEASES="bookworm trixie"; hours, as root)
	@scripts/roots.sh $(RELEASES)

baseline: build ## Measure the exact figures of this release that `make test` compares with
	@directory=$$(scripts/baselines.sh); mkdir -p $$directory; \
	for name in sim sim-kvm; do \
	    $(DIST)/trapline baseline --env $${name/-//} > $$directory/$$name.json.new || \
	        { rm -f $$directory/$$name.json.new; exit 1; }; \
	    mv $$directory/$$name.json.new $$directory/$$name.json; \
	done
	@git diff --stat -- baselines

compilers: ## Build everything with each toolchain of rustup, in one codegen unit (a quarter of an hour each)
	@toolchains=$$(rustup toolchain list | cut -d' ' -f1); \
	oldest=$$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml); \
	grep -q "^$$oldest" <<< "$$toolchains" || { echo "rustup toolchain install $$oldest"; exit 1; }; \
	for toolchain in $$toolchains; do \
	    echo "$$toolchain:"; \
	    CARGO_PROFILE_RELEASE_CODEGEN_UNITS=1 RUSTUP_TOOLCHAIN=$$toolchain \
	        cargo test --quiet --release --workspace --all-targets --no-run --target-dir target/compilers/$$toolchain; \
	done

fixtures: build ## Record the guests that tests replay
	TRAPLINE_IMAGE_TARGET=$(CURDIR)/target/image-slow CARGO_PROFILE_GUEST_OPT_LEVEL=1 \
	    scripts/freestanding.sh trapline-kernel target/image-slow/trapline-image
	@scripts/fixtures.sh $(DIST) target/image-slow/trapline-image

docs: build ## Record the commands of README and docs again, and render these pages (PAGES="docs/gate.md"; minutes)
	@TRAPLINE_PARTS=$(CURDIR)/$(DIST) cargo run --quiet --release --package trapline-tests --bin docs -- $(PAGES)

bench: build ## Print the figures that the README quotes, and rates beside a port of the switch that attacks (SECTION=mechanisms: one section)
	@TRAPLINE_PARTS=$(CURDIR)/$(DIST) cargo run --quiet --release --package trapline-tests --bin figures -- $(SECTION)
	@[ -n "$(SECTION)" ] || $(FUZZ) --quiet --package trapline-switch --test forwarding -- --ignored --nocapture rate_beside_attacks

fuzz: build ## Test parsers, VMM and switch with 10^7 to 10^8 random inputs each (an hour)
	for tests in $(FUZZ_TESTS); do \
	    $(FUZZ) --package $${tests%:*} --test $${tests#*:} --no-fail-fast -- --ignored --nocapture || exit 1; \
	done

power: ## Simulate how often intervals and verdicts are right (eight minutes, once built)
	@cargo run --quiet --release --package trapline-stats --example power

endure: build ## Power-cycle a Linux guest 254 times (half an hour)
	TRAPLINE_PARTS=$(CURDIR)/$(DIST) cargo run --quiet --release --package trapline-tests --bin endure $(CYCLES)

gate-trials: build ## Check that the gate ignores what cannot matter and finds one instruction (BASELINE=FILE; minutes a layout)
	@scripts/gate-trials.sh $(DIST) $(BASELINE)

dist: build ## Pack an archive and a Debian package into target/packages
	@scripts/dist.sh $(DIST) target/packages

image: dist ## Build a container image (OCI archive) into target/packages
	@scripts/image.sh target/packages

clean: ## Remove everything that was built
	cargo clean
