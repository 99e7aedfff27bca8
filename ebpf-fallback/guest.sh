#!/bin/bash
# Runs tests/pipeline.rs on Debian 12's kernel, 6.1, in a virtual machine: its verifier is stricter
# than that of newer kernels. Prints the test's output (the number of verified instructions of each
# stage), and fails if the test fails. The machine is emulated, so that this runs on every build
# machine; it takes a minute or two, and does not measure performance.
#
#   make guest                          # installs the emulator, and:
#   ebpf-fallback/guest.sh [FOLDER]     # default: target/guest, which keeps the kernel
set -euo pipefail
cd "$(dirname "$0")/.."
. .ci/vm.sh

target=${CARGO_TARGET_DIR:-target}
folder=${1:-$target/guest}
vm_needs
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)

kernels=("$folder"/kernel/boot/vmlinuz-6.1.*)
if [ ! -e "${kernels[0]}" ]; then
  package=$(apt-cache search --names-only '^linux-image-6\.1\..*-cloud-amd64$' \
    | cut -d ' ' -f 1 | sort -V | tail -1)
  if [ -z "$package" ]; then
    echo "guest.sh: apt offers no linux-image-6.1.0-*-cloud-amd64 (Debian 12 has it)" >&2
    exit 1
  fi
  (cd "$folder" && apt-get download --quiet "$package" && dpkg -x "${package}"_*.deb kernel)
  kernels=("$folder"/kernel/boot/vmlinuz-6.1.*)
fi

pipeline=$(vm_test ebpf-fallback pipeline)
vm_root "$folder/root" ip
vm_add "$folder/root" "$pipeline" pipeline
vm_boot "$folder" "${kernels[0]}" 1024 'pipeline --nocapture --test-threads=1 2>&1'
