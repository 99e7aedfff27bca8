# Weir's commands. Each runs its prerequisites itself.
#
# Everything except measurements uses the profile `dev`, which is slightly optimized (opt-level 1,
# with overflow checks). Tests, the lab and the demo run the same programs, so the workspace is
# built once. `bench` builds with `release`, since it measures the optimized programs.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help setup demo play play-stop test test-affected fixtures fuzz miri loom asan oracle bench lab \
  lab-units guest nics tcp-ao dpdk debian13 check docs reference deb package-test upgrade-test \
  boot-test image image-lock image-test infrastructure dashboards dashboards-write \
  dashboards-pictures page-test page-pictures top-pictures

# The lab creates namespaces and interfaces, and DPDK opens raw sockets: both need root. Only the
# programs run as root; cargo runs as the calling user.
export CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER := $(if $(filter 0,$(shell id -u)),,sudo -E)
ifeq ($(CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER),)
unexport CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER
endif
AS_ROOT := $(if $(filter 0,$(shell id -u)),,sudo -E)
TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)
NEXTEST := $(shell command -v cargo-nextest)
# The lab's tests poll and need the machine exclusively: .config/nextest.toml configures nextest so,
# and RUST_TEST_THREADS=1 cargo test. Always the whole workspace: with one package selected, cargo
# would rebuild its dependencies with that package's features.
TESTS := $(if $(NEXTEST),cargo nextest run,RUST_TEST_THREADS=1 cargo test) --workspace --no-fail-fast

help: ## List these commands
	@echo "Targets of make:"
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-19s %s\n", $$1, $$2 }' Makefile

setup: ## Install missing Debian packages and tools
	@.ci/setup.sh

# Only the demo's packages and programs are installed and built. Other targets build tests as well,
# which add features to dependencies: after the demo, they compile Weir's crates once more.
demo: ## Run the whole appliance between two emulated clouds (PLANE=xdp: in the kernel)
	@.ci/setup.sh demo $(PLANE)
	cargo build --workspace --bin demo --bin slowpath --bin weir \
	  --bin $(if $(filter xdp,$(PLANE)),ebpf-fallback,fastpath)
	$(AS_ROOT) $(TARGET_DIR)/debug/demo

play: ## Leave the demo's lab running and print commands to try (PLANE=xdp: in the kernel)
	@.ci/setup.sh demo $(PLANE)
	cargo build --workspace --bin playground --bin slowpath --bin weir \
	  --bin $(if $(filter xdp,$(PLANE)),ebpf-fallback,fastpath)
	$(AS_ROOT) $(TARGET_DIR)/debug/playground start

play-stop: ## End the lab of `make play`
	$(AS_ROOT) $(TARGET_DIR)/debug/playground stop

test: setup ## Run all tests: unit tests, cases, DPDK on software ports, the lab
	cargo build --workspace --bins --tests
	$(TESTS)

test-affected: setup ## Run the tests that a change since BASE (HEAD~1) can affect, without labs
	@test -n "$(NEXTEST)" || { echo "test-affected: no nextest; run: cargo install --locked" \
	  "cargo-nextest, or: make test" >&2; exit 1; }
	cargo build --workspace --bins --tests
	$(TESTS) --no-tests pass -E "$$(BASE=$(BASE) .ci/affected.sh)"

lab: setup ## Run the lab only: namespaces, emulated gateways, real clients and backends
	cargo build --workspace --bins --tests
	$(TESTS) --test 'lab*'

# A test fails if the sandbox refuses something. `make test` runs some of these tests under the units
# too. Not among these labs are those with several appliances, and those that read the region
# themselves, for which it belongs to another user.
lab-units: setup ## Run labs with the daemons under their units (users, capabilities, sandbox)
	cargo build --workspace --bins --tests
	WEIR_LAB_UNITS=1 $(TESTS) --test lab_aws --test lab_azure_lifecycle --test lab_bgp \
	  --test lab_gateways --test lab_proxy

# Amazon's models and examples are in FIXTURES/aws-examples, Microsoft's in
# FIXTURES/azure-rest-examples. They are not part of this repository, so other targets ignore these
# tests. FIXTURES is made absolute, since tests run in their crate's directory. The ignored tests in
# virtual machines and containers are run by `make tcp-ao` and `nics`, `package-test`, `boot-test`,
# `upgrade-test`, `image-test`.
fixtures: setup ## Compare requests with the clouds' published models (FIXTURES=DIR)
	@test -d "$(FIXTURES)" || { echo "fixtures: no directory '$(FIXTURES)'; set FIXTURES to the" \
	  "directory with aws-examples and azure-rest-examples" >&2; exit 1; }
	FIXTURES=$(abspath $(FIXTURES)) $(TESTS) \
	  $(if $(NEXTEST),--run-ignored only \
	  -E 'not test(/tcp_ao/) - package(nics) - package(package-test)', -- --ignored \
	  $(addprefix --skip ,tcp_ao virtio_net e1000e vmxnet3 tuned debian_12 debian_13 \
	  the_package_has with_its_flows appliance_forwards image_ second_build formats_hold))

# Microsoft's models take two minutes of CPU and 3.3 GB to compile, so they are a separate
# workspace, built once. The tests make Weir send each kind of request body to the Azure emulator.
oracle: setup ## Parse Weir's requests to Azure with Microsoft's models
	rm -rf $(TARGET_DIR)/bodies
	BODIES=$(abspath $(TARGET_DIR)/bodies) cargo test --workspace --quiet \
	  --test shapes --test scenarios --test membership --test drain
	cargo test --manifest-path tests/oracle/Cargo.toml --locked --quiet \
	  --target-dir $(TARGET_DIR)/oracle
	cargo run --manifest-path tests/oracle/Cargo.toml --locked --quiet \
	  --target-dir $(TARGET_DIR)/oracle -- $(TARGET_DIR)/bodies

# Fuzzing, Miri and AddressSanitizer need a nightly compiler: .ci/nightly.sh pins it, and on failure
# names the missing toolchain or component.
fuzz: setup ## Run each fuzz target for ten seconds (SECONDS=3600 TARGETS="ip tunnel")
	tests/fuzz/run.sh $(or $(SECONDS),10) $(TARGETS)

# Miri is an interpreter that detects undefined behavior in crates with unsafe code. Tests with
# system calls that it does not support (region files, getrlimit) and tests that would take
# minutes are excluded.
NOT_IN_MIRI := region::tests capture_file::tests versioned::tests::under_all_orders \
  versioned::tests::readers_never address_filter::tests::filter_contains \
  affinity::tests::full_affinity command::tests::decoded_words counters::tests::a_drop_is \
  flow::tests::flow_reopened flow::tests::removal_killed flow::tests::an_insert_killed \
  flow::tests::update_killed flow::tests::between flow::tests::legs \
  fragment::tests::full_fragment maglev::tests nat_port::tests::a_range \
  writer::tests::twenty_thousand
miri: ## Run the tests of packet and tables under Miri to find undefined behavior
	toolchain=$$(.ci/nightly.sh miri rust-src) && \
	MIRIFLAGS="-Zmiri-disable-isolation -Zmiri-permissive-provenance" RUSTFLAGS= \
	  CARGO_TARGET_DIR=$(TARGET_DIR)/miri cargo "+$$toolchain" miri test --quiet \
	  --package packet --package tables --lib -- $(addprefix --skip ,$(NOT_IN_MIRI))

loom: ## Check every interleaving of two threads' accesses to the ring
	RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=$(TARGET_DIR)/loom \
	  cargo test --package tables --lib --quiet no_order_of_events_tears_or_loses_a_message

# Tests keep their regions until the process ends, so leak detection is off.
asan: setup ## Run the malformed frames through the pipeline under AddressSanitizer
	toolchain=$$(.ci/nightly.sh) && \
	ASAN_OPTIONS=detect_leaks=0 RUSTFLAGS="-Zsanitizer=address -Ctarget-cpu=x86-64-v3" \
	  CARGO_TARGET_DIR=$(TARGET_DIR)/asan \
	  cargo "+$$toolchain" test --target x86_64-unknown-linux-gnu --workspace --quiet \
	  --test agreement malformed

guest: ## Load the XDP programs on Debian 12's kernel (6.1) in a virtual machine
	@.ci/setup.sh guest
	ebpf-fallback/guest.sh

# Without root: only the virtual machine has NICs.
nics: ## Run fastpath on emulated NICs in a VM (NIC=virtio_net, e1000e, vmxnet3, tuned: one)
	@.ci/setup.sh guest
	cargo build --workspace --bins --tests
	env -u CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER $(TESTS) --test nics --test tune \
	  $(if $(NEXTEST),--run-ignored only --no-capture -E 'test(/^$(NIC)/)', \
	  -- --ignored --nocapture $(NIC))

tcp-ao: ## Run BGP sessions with TCP-AO and BIRD on a kernel that supports it
	@.ci/setup.sh guest
	slowpath/bgp/tcp-ao.sh

# With --workspace the dependencies have the same features as in other builds, so that PROFILE=dev
# packages the programs of the tests without another build.
deb: ## Package the programs for Debian into target/deb (PROFILE=dev: unoptimized programs)
	@.ci/setup.sh deb
	cargo build --workspace --profile $(or $(PROFILE),release) \
	  --bin fastpath --bin slowpath --bin ebpf-fallback --bin weir --bin package
	package/deb.sh $(TARGET_DIR)/$(patsubst dev,debug,$(or $(PROFILE),release)) $(TARGET_DIR)/deb

package-test: ## Install, upgrade and purge the package in Debian 12 and 13, with traffic
	@.ci/setup.sh package-test
	$(MAKE) deb PROFILE=dev
	$(TESTS) --test package $(if $(NEXTEST),--run-ignored only --no-capture, \
	  -- --ignored --nocapture)

# The programs with another region format replace those of the package for a moment: the same
# directory is used, so that only what depends on the format is compiled again.
upgrade-test: ## Upgrade to another region format and back, with traffic, on both planes
	@.ci/setup.sh package-test
	cargo build --workspace --bin fastpath --bin slowpath --bin ebpf-fallback --bin weir \
	  --bin package --features tables/next-format,state/next-format,ebpf-fallback/next-format
	mkdir -p $(TARGET_DIR)/next
	cp $(addprefix $(TARGET_DIR)/debug/,fastpath slowpath ebpf-fallback weir package) \
	  $(TARGET_DIR)/next
	DEB_VERSION=99 package/deb.sh $(TARGET_DIR)/next $(TARGET_DIR)/next/deb
	$(MAKE) deb PROFILE=dev
	$(TESTS) --test upgrade $(if $(NEXTEST),--run-ignored only --no-capture, \
	  -- --ignored --nocapture)

# As root: the machine's NICs are in the lab's namespaces.
boot-test: ## Boot Debian 12 with the package in a VM: reboot, power cut, VFIO, UIO, XDP, traffic
	@.ci/setup.sh boot-test
	$(MAKE) deb PROFILE=dev
	$(TESTS) --test boot $(if $(NEXTEST),--run-ignored only --no-capture, \
	  -- --ignored --nocapture)

# As root, because the image has files of several users. SNAPSHOT, MIRROR and SECURITY_MIRROR are
# those of image/base.sh.
image: ## Build the image into target/image (DEB=FILE, SIGN_KEY=FILE, SNAPSHOT=1, PROFILE=dev)
	@.ci/setup.sh image
	$(if $(DEB),,$(MAKE) deb)
	$(AS_ROOT) env SIGN_KEY=$(SIGN_KEY) SNAPSHOT=$(SNAPSHOT) MIRROR=$(MIRROR) \
	  SECURITY_MIRROR=$(SECURITY_MIRROR) \
	  image/build.sh "$(or $(DEB),$$(ls $(TARGET_DIR)/deb/weir_*.deb))" $(TARGET_DIR)/image

image-lock: ## Record the newest Debian packages for the image in image/packages.lock
	@.ci/setup.sh image
	$(AS_ROOT) image/base.sh --record $(TARGET_DIR)/image

image-test: ## Build the image, boot it with traffic, reboot it, scan it, build it again
	@.ci/setup.sh image
	$(MAKE) image PROFILE=dev
	$(TESTS) --test image $(if $(NEXTEST),--run-ignored only --no-capture, \
	  -- --ignored --nocapture)

# Debian 12 has 22.11 without net/mana. Builds use the result only if PKG_CONFIG_PATH names it.
dpdk: ## Build DPDK 24.11 with all drivers into .tools/dpdk (DPDK_SUITE=bookworm: 22.11)
	@.ci/setup.sh dpdk
	@dpdk-bindings/build-dpdk.sh

debian13: ## Test the bindings with Debian 13's DPDK (24.11, with net_mana) in a chroot
	@.ci/setup.sh debian13
	$(AS_ROOT) dpdk-bindings/debian13.sh

bench: setup ## Run the benchmarks against testpmd and a C loop in the same run (QUICK=1: fewer cases)
	cargo build --release --package perf --package fastpath --package slowpath --bins
	$(AS_ROOT) $(TARGET_DIR)/release/bench $(if $(QUICK),--quick)
	$(AS_ROOT) $(TARGET_DIR)/release/floods $(if $(QUICK),--kind syn)
	$(AS_ROOT) $(TARGET_DIR)/release/control
	$(AS_ROOT) $(TARGET_DIR)/release/xdp-journey
	$(TARGET_DIR)/release/probes
	$(TARGET_DIR)/release/logs 2> /dev/null
	$(AS_ROOT) $(TARGET_DIR)/release/page $(if $(QUICK),--services 1000)

# Without an account, and without Rust. `weir config check` reads the rendered configuration if weir
# is built; otherwise only the test user_data of the crate config does.
infrastructure: ## Check Terraform, Bicep and user data against the clouds' published models
	@.ci/setup.sh infrastructure
	WEIR="$(abspath $(wildcard $(TARGET_DIR)/debug/weir))" \
	  node --test --test-reporter=spec tests/infrastructure/check.test.mjs

# Three minutes, after the build: the panels need some history. The lab needs root.
DASHBOARDS := node --test --test-reporter=spec --test-concurrency=1
dashboards: ## Check rules and dashboards, and run them against a lab with a real Prometheus
	@.ci/setup.sh dashboards
	cargo build --workspace --bins --tests
	$(AS_ROOT) $(DASHBOARDS) tests/dashboards/check.test.mjs tests/dashboards/lab.test.mjs

dashboards-write: ## Write rules and dashboards from their sources (needs node only)
	node tests/dashboards/generate.mjs

dashboards-pictures: ## Draw the book's pictures of the dashboards, with the answers of a lab
	@.ci/setup.sh dashboards pictures
	cargo build --workspace --bins --tests
	$(AS_ROOT) env WEIR_PICTURES=write $(DASHBOARDS) tests/dashboards/lab.test.mjs

# Four minutes, after the build: sixty refreshes of two seconds. The lab needs root.
page-test: ## Show the page of a lab's appliance in Chromium: content, live values, phone
	@.ci/setup.sh dashboards pictures
	cargo build --workspace --bins --tests
	$(AS_ROOT) $(DASHBOARDS) tests/page/page.test.mjs

page-pictures: ## Draw the book's pictures of the page
	@.ci/setup.sh dashboards pictures
	cargo build --workspace --bins --tests
	$(AS_ROOT) env WEIR_PICTURES=write $(DASHBOARDS) tests/page/page.test.mjs

top-pictures: ## Write the book's pictures of weir top, on the screen of a lab
	@.ci/setup.sh dashboards pictures
	cargo build --workspace --bin playground --bin slowpath --bin fastpath --bin weir
	$(AS_ROOT) env CARGO_TARGET_DIR=$(TARGET_DIR) node tests/terminal/pictures.mjs

docs: ## Build the book of docs/src as HTML into docs/book
	@.ci/setup.sh docs
	.tools/bin/mdbook build docs

# The tests that compare the pages with the programs write them.
reference: setup ## Write the generated pages of the book's reference and config/KEYS.md
	mkdir -p $(TARGET_DIR)
	cargo run --package config --example keys > $(TARGET_DIR)/KEYS.md
	cp $(TARGET_DIR)/KEYS.md config/KEYS.md
	cargo build --workspace --bins --tests
	WEIR_REFERENCE=write $(TESTS) $(if $(NEXTEST),-E 'test(/the_reference_of/)',the_reference_of)

# The last two lints only warn: long lists and parsers with many branches are legitimate.
check: setup ## Check formatting, lints, unused dependencies, licenses and advisories
	@.ci/setup.sh check
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- --deny warnings \
	  --force-warn clippy::too_many_lines --force-warn clippy::cognitive_complexity
	.tools/bin/cargo-machete
	.tools/bin/cargo-deny check bans licenses sources
	if timeout 60 .tools/bin/cargo-deny fetch db; then .tools/bin/cargo-deny check advisories; \
	else echo "check: NOT RUN: advisories: the advisory database cannot be reached"; fi
