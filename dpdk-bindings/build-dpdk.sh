#!/usr/bin/env bash
# Builds DPDK from Debian's source package into .tools/dpdk: static archives, headers and pkg-config
# files, with the drivers that build.rs names and no others. Debian 12's own package lacks net/mana.
# The machine's apt configuration is not changed. A source from Debian is verified with Debian's
# keys; one given as DPDK_SOURCE is not verified.
#
#   make dpdk                                 # 24.11, from Debian 13 (trixie)
#   make dpdk DPDK_SUITE=bookworm             # 22.11, with net/mana
#   make dpdk DPDK_SOURCE=dpdk-24.11.8.tar.xz # a source that is already here, or its directory
#
# DPDK_MIRROR is the URI of a Debian mirror; by default the one that this machine's apt uses.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD

suite=${DPDK_SUITE:-trixie}
source=${DPDK_SOURCE:+$(realpath -- "$DPDK_SOURCE")}
mkdir -p .tools
result=$(realpath .tools)/dpdk
work=$result.build
log=$work/log

fail() {
  printf 'dpdk: %s\n' "$1" >&2
  shift
  if (($#)); then printf '  %s\n' "$@" >&2; fi
  exit 1
}

# The table of drivers in build.rs is the only one: net_vdev_netvsc there is net/vdev_netvsc here.
mapfile -t libraries < <(sed -n 's/^    driver("\([a-z0-9_]*\)", .*/\1/p' dpdk-bindings/build.rs)
((${#libraries[@]} > 10)) || fail "no table of drivers in dpdk-bindings/build.rs"
drivers=$(IFS=, && echo "${libraries[*]/_//}")

# The instruction set that Weir itself is built for.
cpu=$(sed -n 's/.*-Ctarget-cpu=\([a-z0-9-]*\).*/\1/p' .cargo/config.toml)
[[ $cpu ]] || fail "no -Ctarget-cpu in .cargo/config.toml"

# The inputs of the build. A finished build is kept until one of them changes.
inputs="source: ${source:-$suite}
drivers: $drivers
cpu: $cpu
script: $(sha256sum < "$root/dpdk-bindings/build-dpdk.sh" | cut -d ' ' -f 1)"
print_result() {
  local path release
  cd "$root"
  path=$(dirname .tools/dpdk/lib/*/pkgconfig/libdpdk.pc)
  release=$(PKG_CONFIG_PATH=$path pkg-config --modversion libdpdk)
  echo "dpdk: DPDK $release is in .tools/dpdk; to build Weir with it:"
  echo "  PKG_CONFIG_PATH=$path cargo build --release --workspace --bins"
}
if [[ -e $result/built-from && $(< "$result/built-from") == "$inputs" ]]; then
  print_result
  echo "  (built before; to build it again: rm -r .tools/dpdk)"
  exit 0
fi

rm -rf "$work"
mkdir -p "$work"

# Prints the URI of a mirror in the machine's apt configuration. The label comes from the lists that
# `apt-get update` downloads.
mirror_labeled() {
  apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' "Label: $1" | sed -n 1p
}

# Fetches Debian's source package into $work/src, with a separate apt configuration.
fetch() {
  local apt=$work/apt keys=/usr/share/keyrings/debian-archive-keyring.gpg
  local mirror=${DPDK_MIRROR:-$(mirror_labeled Debian)} packages security version
  [[ $mirror ]] || fail "apt's configuration names no Debian mirror" \
    "run: apt-get update; or give one: make dpdk DPDK_MIRROR=URI"
  mkdir -p "$apt"/{etc/apt/preferences.d,var/lib/apt/lists/partial} \
    "$apt"/var/cache/apt/archives/partial
  : > "$apt/status"
  echo "deb-src [signed-by=$keys] $mirror $suite main" > "$apt/etc/apt/sources.list"
  security=$(mirror_labeled Debian-Security)
  # Debian publishes security updates for releases, but not for sid, for experimental, or for suites
  # with a hyphen, such as bookworm-backports.
  case $security,$suite in
    ,* | *,sid | *,unstable | *,experimental | *,*-*) ;;
    *) echo "deb-src [signed-by=$keys] $security $suite-security main" \
      >> "$apt/etc/apt/sources.list" ;;
  esac
  local options=(-o Dir="$apt" -o Dir::State::status="$apt/status"
    -o Dir::Etc::SourceParts=/dev/null -o APT::Sandbox::User="$(id --user --name)"
    -o Acquire::Languages=none --quiet)
  apt-get "${options[@]}" --error-on=any update > "$log" 2>&1 ||
    fail "cannot read suite $suite of $mirror: $(grep -m 1 '^E:' "$log"); log: $log" \
      "give a suite (DPDK_SUITE=bookworm has 22.11) or another mirror (DPDK_MIRROR=URI)"
  packages=$(apt-cache "${options[@]}" showsrc --only-source dpdk 2>> "$log" || true)
  version=$(sed -n 's/^Version: //p' <<< "$packages" | sort --version-sort | tail -1)
  [[ $version ]] || fail "suite $suite of $mirror has no source package dpdk"
  echo "dpdk: fetching the source of dpdk $version ($suite)"
  (cd "$work" && apt-get "${options[@]}" source --download-only "dpdk=$version") >> "$log" 2>&1 ||
    fail "$mirror lists dpdk $version of $suite, but does not deliver its source; log: $log" \
      "give another mirror:          make dpdk DPDK_MIRROR=URI" \
      "or the source, from dpdk.org: make dpdk DPDK_SOURCE=dpdk-24.11.8.tar.xz" \
      "or use 22.11 of Debian 12:    make dpdk DPDK_SUITE=bookworm" \
      "On Debian 13, libdpdk-dev has every driver: run make setup there, and no make dpdk."
  # apt has verified the archives. This applies Debian's patches.
  dpkg-source --extract "$work"/dpdk_*.dsc "$work/src" >> "$log" 2>&1 ||
    fail "cannot unpack the source of dpdk $version; log: $log"
}

if [[ -z $source ]]; then
  fetch
elif [[ -d $source ]]; then
  cp -r "$source" "$work/src"
else
  mkdir "$work/src"
  tar --extract --file "$source" --directory "$work/src" --strip-components 1 ||
    fail "cannot unpack DPDK_SOURCE=$source"
fi
[[ -e $work/src/VERSION ]] || fail "${source:-$work/src}: not a source of DPDK: no file VERSION"

version=$(< "$work/src/VERSION")
echo "dpdk: building DPDK $version (minutes; log: $log)"
# Debian's hardening, but upstream's optimization (-O3) and no debug information.
cd "$work/src"
flags() {
  DEB_CFLAGS_STRIP="-g -O2" DEB_BUILD_MAINT_OPTIONS=hardening=+all dpkg-buildflags --get "$1"
}
CFLAGS="$(flags CFLAGS) $(flags CPPFLAGS)" meson setup "$work/build" \
  --prefix "$result" --libdir "lib/$(gcc -print-multiarch)" --buildtype release \
  -Dpkgconfig.relocatable=true -Dplatform=generic -Dcpu_instruction_set="$cpu" \
  -Denable_drivers="$drivers" -Dtests=false -Ddisable_apps='*' >> "$log" 2>&1 ||
  fail "meson failed: $(grep -m 1 ERROR "$log" || echo "no message"); log: $log"
# DPDK silently leaves out drivers whose dependencies are missing.
for library in "${libraries[@]}"; do
  grep -qF "librte_$library.a" "$work/build/build.ninja" ||
    fail "DPDK $version would be built without ${library/_//}: $(
      grep -m 1 -oP "${library/_//}:\s*\K.*" "$log" || echo "it has no such driver"
    ); log: $log"
done
ninja -C "$work/build" >> "$log" 2>&1 ||
  fail "the build failed: $(grep -m 1 -E 'error:|FAILED' "$log" || echo "no message"); log: $log"
DESTDIR=$work/staged meson install --no-rebuild -C "$work/build" >> "$log" 2>&1 ||
  fail "meson install failed; log: $log"

# Weir links the archives only.
staged=$work/staged$result
libdir=$(dirname "$(find "$staged/lib" -name librte_eal.a)")
find "$libdir" -name '*.so*' -delete
rm -rf "$libdir"/dpdk "$staged/share"
printf '%s\n' "$inputs" > "$staged/built-from"
rm -rf "$result"
mv "$staged" "$result"
rm -rf "$work"
print_result
