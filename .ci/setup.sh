#!/usr/bin/env bash
# Installs what building, testing and showing Weir needs and this machine lacks. Fast and silent
# where nothing is missing, so every other command may call it first.
set -euo pipefail

if [[ $(uname --machine) == x86_64 ]] && ! grep -qw avx2 /proc/cpuinfo; then
  echo "setup: this processor has no AVX2. Weir is built for x86-64-v3 (2013 or later); for an" >&2
  echo "  older one change target-cpu in .cargo/config.toml to x86-64-v2" >&2
  exit 1
fi

packages=(
  # A linker and a C compiler (the DPDK shim, the C peer of the benchmarks).
  gcc libc6-dev make pkg-config
  # DPDK's headers and archives; dpdk-testpmd, which is generator and peer of the benchmarks.
  libdpdk-dev dpdk-dev
  # The lab: namespaces and veth, sysctl, offloads off, the kernel kept from answering, and a
  # second decoder.
  iproute2 procps ethtool nftables tshark
)

# bindgen reads DPDK's headers with any libclang that comes with its own headers.
has_libclang() {
  local folder
  for folder in /usr/lib/llvm-*/lib; do
    if compgen -G "$folder/libclang*.so*" > /dev/null &&
      compgen -G "$folder/clang/*/include/stddef.h" > /dev/null; then
      return 0
    fi
  done
  return 1
}

missing=()
if command -v dpkg-query > /dev/null; then
  installed=" $(dpkg-query --show --showformat='${db:Status-Status}=${Package} ' \
    "${packages[@]}" 2> /dev/null || true)"
  for package in "${packages[@]}"; do
    [[ $installed == *" installed=$package "* ]] || missing+=("$package")
  done
else
  echo "setup: this is no Debian. Install these, or what they are called here, by hand:" >&2
  echo "  ${packages[*]} libclang1-14 libclang-common-14-dev" >&2
  exit 1
fi
# The smallest: 30 MB and 20 MB where clang itself would be ten times as much.
has_libclang || missing+=(libclang1-14 libclang-common-14-dev)

if ((${#missing[@]})); then
  as_root=()
  if ((EUID != 0)); then
    if ! command -v sudo > /dev/null; then
      echo "setup: not root, and there is no sudo. As root, type:" >&2
      echo "  apt-get install --no-install-recommends ${missing[*]}" >&2
      exit 1
    fi
    as_root=(sudo)
  fi
  echo "setup: installing ${missing[*]}"
  "${as_root[@]}" apt-get update -qq
  # noninteractive: tshark asks who may capture.
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install --yes --no-install-recommends -qq "${missing[@]}" > /dev/null
fi

if ! command -v cargo > /dev/null; then
  echo "setup: no cargo on the PATH. Install Rust 1.95 or later: https://rustup.rs" >&2
  exit 1
fi
