#!/bin/bash
# Runs the tests of TCP-AO (RFC 5925) in a virtual machine, because Debian 12's kernels are built
# without TCP-AO. The virtual machine has Debian's newest kernel from trixie-backports, which has
# CONFIG_TCP_AO, and trixie's BIRD (2.17 or later), which supports TCP-AO. Both come from Debian's
# archive and are verified with its keys. They are not installed, only unpacked below FOLDER.
#
#   make tcp-ao                         # installs the virtual machine emulator, then runs:
#   slowpath/bgp/tcp-ao.sh [FOLDER]     # default: target/tcp-ao; later runs use its packages again
set -euo pipefail
cd "$(dirname "$0")/../.."
. .ci/vm.sh

target=${CARGO_TARGET_DIR:-target}
folder=${1:-$target/tcp-ao}
vm_needs cargo xz ip
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)

# A separate apt configuration with other suites, without this machine's state and packages.
apt=$folder/apt
keys=/usr/share/keyrings/debian-archive-keyring.gpg
as_other_suites() {
  "$1" -o Dir="$apt" -o Dir::State::status="$apt/status" -o Dir::Etc::Parts=/dev/null \
    -o Dir::Etc::SourceParts=/dev/null -o APT::Architecture=amd64 -o APT::Sandbox::User=root \
    -o Acquire::Languages=none "${@:2}"
}
unpacked=$folder/unpacked
if [ ! -e "$folder/complete" ]; then
  rm -rf "$apt" "$unpacked"
  mkdir -p "$apt"/{etc/apt/preferences.d,var/lib/apt/lists/partial,var/cache/apt/archives/partial} \
    "$apt/var/lib/dpkg" "$unpacked"
  : > "$apt/status"
  printf 'deb [signed-by=%s] http://deb.debian.org/debian %s main\n' \
    "$keys" trixie "$keys" trixie-backports > "$apt/etc/apt/sources.list"
  as_other_suites apt-get update --quiet
  kernel=$(as_other_suites apt-cache search --names-only '^linux-modules-.*-cloud-amd64$' \
    | cut -d ' ' -f 1 | sort -V | tail -1)
  version=${kernel#linux-modules-}
  if [ -z "$version" ]; then
    echo "tcp-ao.sh: trixie-backports offers no linux-modules-*-cloud-amd64" >&2
    exit 1
  fi
  (cd "$folder" && rm -f ./*.deb && as_other_suites apt-get download --quiet \
    "linux-base-$version" "linux-binary-$version" "linux-modules-$version" \
    bird2 libc6 libtinfo6 libreadline8t64 libssh-4 libssl3t64 zlib1g libzstd1 libgssapi-krb5-2 \
    libkrb5-3 libk5crypto3 libkrb5support0 libcom-err2 libkeyutils1
  for package in ./*.deb; do dpkg -x "$package" "$unpacked"; done)
  touch "$folder/complete"
fi
config=$(find "$unpacked" -name 'config*' -type f -exec grep -l '^CONFIG_TCP_AO=y' {} + | head -1)
kernel=$(find "$unpacked" -name 'vmlinuz*' | head -1)
if [ -z "$config" ] || [ -z "$kernel" ]; then
  echo "tcp-ao.sh: Debian's newest kernel has no CONFIG_TCP_AO; there is none to test with" >&2
  exit 1
fi

test=$(vm_test slowpath/bgp real)
root=$folder/root
vm_root "$root" insmod sleep cat kill mkdir
vm_add "$root" "$test" real
vm_add "$root" "$(command -v ip)"
vm_add "$root" "$(command -v setpriv)"
# BIRD and its libraries; the other programs also run with these newer versions.
mkdir -p "$root/usr/sbin" "$root/usr/lib/x86_64-linux-gnu" "$root/lib/x86_64-linux-gnu" \
  "$root/etc" "$root/run"
cp "$unpacked"/usr/sbin/bird{,c} "$root/usr/sbin/"
ln -s /usr/sbin/birdc "$root/bin/birdc"
find "$unpacked" -path '*/x86_64-linux-gnu/*.so*' ! -path '*/gconv/*' ! -path '*/ossl-modules/*' \
  -exec cp -L {} "$root/lib/x86_64-linux-gnu/" \;
mkdir -p "$root/lib64"
cp -L "$root/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2" "$root/lib64/"
for module in veth hmac cmac aes_generic sha1_generic; do
  find "$unpacked" -name "$module.ko*" | while read -r file; do
    case $file in
      *.xz) xz -dc "$file" > "$root/$module.ko" ;;
      *.zst) zstd -dqc "$file" > "$root/$module.ko" ;;
      *) cp "$file" "$root/$module.ko" ;;
    esac
  done
done
vm_boot "$folder" "$kernel" 2048 'for module in /*.ko; do insmod $module; done
real --ignored --exact --nocapture --test-threads=1 \
  authenticated::sessions_with_equal_tcp_ao_keys_come_up_and_no_others \
  rotation::session_goes_on_while_both_sides_replace_the_tcp_ao_key 2>&1'
