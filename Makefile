# Two commands matter: `make run` shows what virtualization costs here, and
# `make test` tells whether everything works. Both do all that is needed first.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

DIST := target/dist
BUILT := target/x86_64-unknown-linux-gnu
# What runs inside the measured machine, and what checks it.
GUEST_PROGRAMS := trapline-vmm trapline-agent trapline-conformance trapline-floor \
	trapline-probe trapline-symbols
SKIPS := $(CURDIR)/target/skips.txt

BASELINES := baselines

.PHONY: help setup build run test check baseline bench power endure clean

help: ## Show this list
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/make \1\t\2/p' Makefile | expand -t 14

setup: ## Install what is missing from the distribution, nothing else
	@scripts/setup.sh

build: setup ## Build every part into target/dist
	@scripts/build.sh $(BUILT) $(DIST) $(GUEST_PROGRAMS)

run: build ## Measure everything this machine offers (about a minute, once built)
	@$(DIST)/trapline run

check: ## Check format and lints
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings

test: build check ## Run every test; ends with what was skipped and why
	@rm -f $(SKIPS)
	TRAPLINE_SKIPS=$(SKIPS) TRAPLINE_PARTS=$(CURDIR)/$(DIST) cargo test --workspace --no-fail-fast
	@scripts/skips.sh $(SKIPS)

baseline: build ## Measure again the exact figures that changes are checked against
	@for name in sim sim-kvm; do \
	    $(DIST)/trapline baseline --env $${name/-//} > $(BASELINES)/$$name.json.new || \
	        { rm -f $(BASELINES)/$$name.json.new; exit 1; }; \
	    mv $(BASELINES)/$$name.json.new $(BASELINES)/$$name.json; \
	done
	@git diff --stat -- $(BASELINES)

bench: build ## Print the figures that the project stands for
	@TRAPLINE_PARTS=$(CURDIR)/$(DIST) cargo run --quiet --package trapline-tests --bin figures

power: ## Simulate how often intervals and verdicts are right (two minutes, once built)
	@cargo run --quiet --release --package trapline-stats --example power

endure: build ## Power-cycle a Linux guest 254 times (half an hour)
	TRAPLINE_PARTS=$(CURDIR)/$(DIST) cargo run --quiet --package trapline-tests --bin endure $(CYCLES)

clean: ## Remove everything that was built
	cargo clean
