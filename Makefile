# Weir's few commands. Each does what has to be done before it; nothing needs to be typed first.
#
# One profile for all but measurements: `dev`, which is optimised a little (opt-level 1, checks of
# overflow on). Tests, the lab and the demo run the same programs, so the workspace is built once.
# `bench` builds with `release`, because there only the optimised program is the subject.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help setup demo test test-affected fixtures fuzz miri loom asan oracle bench lab guest tcp-ao \
  check docs reference

# The lab makes namespaces and interfaces, and DPDK opens raw sockets: both need root. Only the
# programs run as root, cargo itself stays who you are.
export CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER := $(if $(filter 0,$(shell id -u)),,sudo -E)
ifeq ($(CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER),)
unexport CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER
endif
AS_ROOT := $(if $(filter 0,$(shell id -u)),,sudo -E)
TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)
NEXTEST := $(shell command -v cargo-nextest)
# The lab's tests poll and want the machine for themselves: .config/nextest.toml says so to nextest,
# cargo test is told to run one at a time. Always the whole workspace: with one package selected,
# cargo would build what it depends on anew, with that package's features.
TESTS := $(if $(NEXTEST),cargo nextest run,RUST_TEST_THREADS=1 cargo test) --workspace --no-fail-fast

help: ## list these commands
	@echo "Weir: type make and one of"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-13s %s\n", $$1, $$2 }' Makefile

setup: ## install what is missing (Debian packages by name; nothing where all is there)
	@.ci/setup.sh

# Only what the demo runs is installed and built. With --workspace the dependencies have the features
# that they have for all else, so that nothing is built again for the tests.
demo: ## run the whole appliance between two emulated clouds (PLANE=xdp: in the kernel)
	@.ci/setup.sh demo $(PLANE)
	cargo build --workspace --bin demo --bin slowpath --bin weir \
	  --bin $(if $(filter xdp,$(PLANE)),ebpf-fallback,fastpath)
	$(AS_ROOT) $(TARGET_DIR)/debug/demo

test: setup ## run all tests: units, cases, DPDK on software ports, the lab
	cargo build --workspace --bins --tests
	$(TESTS)

test-affected: setup ## run the tests that a change can touch, without labs (BASE=HEAD~1: what it is compared with)
	@test -n "$(NEXTEST)" || { echo "test-affected: it needs nextest: cargo install --locked" \
	  "cargo-nextest; or type make test" >&2; exit 1; }
	cargo build --workspace --bins --tests
	$(TESTS) --no-tests pass -E "$$(BASE=$(BASE) .ci/affected.sh)"

lab: setup ## run the lab only: namespaces, emulated gateways, real clients and backends
	cargo build --workspace --bins --tests
	$(TESTS) --test 'lab*'

# Amazon's models and examples in FIXTURES/aws-examples, Microsoft's in FIXTURES/azure-rest-examples.
# They are not part of this repository, so these tests are ignored elsewhere. FIXTURES is made
# absolute: tests run in their own folders. The ignored test of TCP-AO is that of `make tcp-ao`.
fixtures: setup ## compare requests with what clouds publish (FIXTURES=DIR)
	@test -d "$(FIXTURES)" || { echo "fixtures: FIXTURES=DIR must name the folder that holds" \
	  "aws-examples and azure-rest-examples; it is '$(FIXTURES)'" >&2; exit 1; }
	FIXTURES=$(abspath $(FIXTURES)) $(TESTS) \
	  $(if $(NEXTEST),--run-ignored only -E 'not test(/tcp_ao/)',-- --ignored --skip tcp_ao)

# Microsoft's models take two minutes of CPU and 3.3 GB to compile, so they are a workspace of their
# own, built once. The tests are those that have Weir write each kind of body to Azure's stand-in.
oracle: setup ## have Microsoft's models of Azure's network read what Weir writes there
	rm -rf $(TARGET_DIR)/bodies
	BODIES=$(abspath $(TARGET_DIR)/bodies) cargo test --workspace --quiet \
	  --test shapes --test scenarios --test membership --test leave
	cargo test --manifest-path tests/oracle/Cargo.toml --locked --quiet \
	  --target-dir $(TARGET_DIR)/oracle
	cargo run --manifest-path tests/oracle/Cargo.toml --locked --quiet \
	  --target-dir $(TARGET_DIR)/oracle -- $(TARGET_DIR)/bodies

# A nightly compiler runs these four or parts of them: .ci/nightly.sh pins it, and fails with the name
# of what can't be had.
fuzz: setup ## run each fuzz target for ten seconds (SECONDS=3600 TARGETS="ip tunnel")
	tests/fuzz/run.sh $(or $(SECONDS),10) $(TARGETS)

# Miri interprets: it finds undefined behaviour in the crates that have unsafe code. Left out are
# tests with system calls that it does not have (files of regions, getrlimit) and those that take
# minutes under it.
NOT_IN_MIRI := region::tests versioned::tests::under_all_orders versioned::tests::lcores_never \
  addresses::tests::what_was_added affinity::tests::a_full_table command::tests::words_that_decode \
  counters::tests::a_drop_is flow::tests::a_flow_that_begins flow::tests::a_removal_killed \
  flow::tests::an_insert_killed flow::tests::an_update_killed flow::tests::between \
  flow::tests::legs fragment::tests::a_full_table maglev::tests nat_port::tests::a_range \
  writer::tests::a_hundred_thousand
miri: ## interpret the tests of packet and tables, and find undefined behaviour
	toolchain=$$(.ci/nightly.sh miri rust-src) && \
	MIRIFLAGS="-Zmiri-disable-isolation -Zmiri-permissive-provenance" RUSTFLAGS= \
	  CARGO_TARGET_DIR=$(TARGET_DIR)/miri cargo "+$$toolchain" miri test --quiet \
	  --package packet --package tables --lib -- $(addprefix --skip ,$(NOT_IN_MIRI))

loom: ## try every order of two threads' accesses to the ring
	RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=$(TARGET_DIR)/loom \
	  cargo test --package tables --lib --quiet every_order

# Regions of tests live until the process ends, which is no leak.
asan: setup ## run the malformed frames through the pipeline under AddressSanitizer
	toolchain=$$(.ci/nightly.sh) && \
	ASAN_OPTIONS=detect_leaks=0 RUSTFLAGS="-Zsanitizer=address -Ctarget-cpu=x86-64-v3" \
	  CARGO_TARGET_DIR=$(TARGET_DIR)/asan \
	  cargo "+$$toolchain" test --target x86_64-unknown-linux-gnu --workspace --quiet \
	  --test agreement malformed

guest: ## have Debian 12's own kernel (6.1, in a virtual machine) load the kernel's programs
	@.ci/setup.sh guest
	ebpf-fallback/guest.sh

tcp-ao: ## run BGP sessions with TCP-AO on a kernel that has it, with BIRD
	@.ci/setup.sh guest
	slowpath/bgp/tcp-ao.sh

bench: setup ## measure against testpmd and a C loop in the same run (QUICK=1: fewer cases)
	cargo build --release --package perf --package fastpath --bins
	$(AS_ROOT) $(TARGET_DIR)/release/bench $(if $(QUICK),--quick)
	$(AS_ROOT) $(TARGET_DIR)/release/floods $(if $(QUICK),--kind syn)
	$(AS_ROOT) $(TARGET_DIR)/release/control
	$(AS_ROOT) $(TARGET_DIR)/release/xdp-journey
	$(TARGET_DIR)/release/probes

docs: ## build the book of docs/src as HTML into docs/book
	@.ci/setup.sh docs
	.tools/bin/mdbook build docs

# The tests that compare the pages with the programs write them.
reference: setup ## write the generated pages of the book's reference and config/KEYS.md
	mkdir -p $(TARGET_DIR)
	cargo run --package config --example keys > $(TARGET_DIR)/KEYS.md
	cp $(TARGET_DIR)/KEYS.md config/KEYS.md
	cargo build --workspace --bins --tests
	WEIR_REFERENCE=write $(TESTS) $(if $(NEXTEST),-E 'test(/the_reference_of/)',the_reference_of)

# The last two lints only warn: a list may be long, and a parser has many branches.
check: setup ## formatting, lints, unused dependencies, licences and advisories
	@.ci/setup.sh check
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- --deny warnings \
	  --force-warn clippy::too_many_lines --force-warn clippy::cognitive_complexity
	.tools/bin/cargo-machete
	.tools/bin/cargo-deny check bans licenses sources
	if timeout 60 .tools/bin/cargo-deny fetch db; then .tools/bin/cargo-deny check advisories; \
	else echo "check: advisories were not looked at: their list is not within reach"; fi
