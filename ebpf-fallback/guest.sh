#!/bin/bash
# Runs tests/pipeline.rs on Debian 12's kernel, 6.1, in a virtual machine: its verifier is stricter
# than that of newer kernels. Prints the test's output (the number of verified instructions of each
# stage), and fails if the test fails. The machine is emulated, so the script needs no hardware
# virtualization. It takes a minute or two, and does not measure performance.
#
#   make guest                          # installs the emulator, then runs this script
#   ebpf-fallback/guest.sh [FOLDER]     # default: target/guest, which keeps the kernel
set -euo pipefail
cd "$(dirname "$0")/.."
. .ci/vm.sh

target=${CARGO_TARGET_DIR:-target}
folder=${1:-$target/guest}
vm_needs cargo flock
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)

kernel=$(vm_kernel "$folder")
pipeline=$(vm_test ebpf-fallback pipeline)
vm_root "$folder/root" ip
vm_add "$folder/root" "$pipeline" pipeline
vm_boot "$folder" "$kernel" 1024 'pipeline --nocapture --test-threads=1 2>&1'
