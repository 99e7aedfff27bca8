#!/usr/bin/env bash
# Runs the tests of this crate against Debian 13's DPDK (24.11, with net/mana), in a chroot with
# Debian 13's compiler and libraries and this machine's Rust. Needs root.
#
#   make debian13                           # installs mmdebstrap, and:
#   dpdk-bindings/debian13.sh [FOLDER]      # default: target/debian13, which keeps the chroot
set -euo pipefail
cd "$(dirname "$0")/.."
repository=$PWD

mkdir -p "${1:-${CARGO_TARGET_DIR:-target}/debian13}"
folder=$(cd "${1:-${CARGO_TARGET_DIR:-target}/debian13}" && pwd)
root=$folder/root
cargo=${CARGO_HOME:-$HOME/.cargo}
rustup=${RUSTUP_HOME:-$HOME/.rustup}
if ! [[ -d $cargo && -d $rustup ]]; then
  echo "debian13.sh: no Rust in $cargo and $rustup: install it with rustup" >&2
  exit 1
fi

mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Label: Debian' |
  sed -n 1p)
if [[ -z $mirror ]]; then
  echo "debian13.sh: apt's configuration names no Debian mirror; run: apt-get update" >&2
  exit 1
fi
if ! [[ -e $folder/complete ]]; then
  echo "debian13.sh: installing Debian 13 into $root (minutes; log: $folder/log)"
  rm -rf --one-file-system "$root"
  packages=gcc,libc6-dev,pkg-config,binutils,iproute2,libdpdk-dev,libclang1-19,libclang-common-19-dev
  if ! mmdebstrap --variant=minbase --include="$packages" trixie "$root" "$mirror" \
    > "$folder/log" 2>&1; then
    echo "debian13.sh: mmdebstrap failed: $(grep -m 1 '^E:' "$folder/log"); log: $folder/log" >&2
    exit 1
  fi
  touch "$folder/complete"
fi

# The crates come from cargo's cache, because the chroot may have no access to the network.
cargo fetch --locked --quiet
# The mounts end with the process.
mounts='
set -euo pipefail
for folder in "$repository" "$cargo" "$rustup" "$target"; do
  mkdir -p "$root$folder"
  mount --rbind "$folder" "$root$folder"
done
for folder in /dev /sys /proc; do mount --rbind "$folder" "$root$folder"; done
exec chroot "$root" env PATH="$cargo/bin:/usr/bin:/usr/sbin" CARGO_TARGET_DIR="$target" \
  CARGO_HOME="$cargo" RUSTUP_HOME="$rustup" bash -euc "
    cd $repository
    unset PKG_CONFIG_PATH LIBCLANG_PATH CLANG_PATH
    echo \"debian13.sh: DPDK \$(pkg-config --modversion libdpdk)\"
    cargo test --offline --locked --package dpdk-bindings
  "
'
mkdir -p "$folder/target"
export repository cargo rustup root target=$folder/target
exec unshare --mount bash -c "$mounts"
