#!/usr/bin/env bash
# Packages built programs as Debian packages: weir, and weir-dbgsym with their debug symbols.
#
#   package/deb.sh [PROGRAMS [FOLDER]]   # default: target/release, target/deb
#
# `make deb` builds the programs first. DEB_VERSION is the version; by default it is derived from
# the workspace's version and the commit. SOURCE_DATE_EPOCH is the time of all files, by default
# that of the commit: the same programs give the same packages. DEB_MAINTAINER is the name and
# address of the maintainer.
set -euo pipefail
umask 022
cd "$(dirname "${BASH_SOURCE[0]}")/.."
target=${CARGO_TARGET_DIR:-target}
programs=$(realpath -- "${1:-$target/release}")
out=${2:-$target/deb}
mkdir -p "$out"
out=$(realpath -- "$out")

fail() {
  echo "deb.sh: $1" >&2
  exit 1
}

names=(fastpath slowpath ebpf-fallback weir)
for name in "${names[@]}" package; do
  [[ -x $programs/$name ]] || fail "no $name in $programs; run: make deb"
done

# Unless the commit has the tag of the release, the version sorts after those of earlier commits and
# before the release.
if [[ -z ${DEB_VERSION-} ]]; then
  version=$(sed -n '/^\[workspace.package\]/,/^$/s/^version = "\(.*\)"$/\1/p' Cargo.toml)
  [[ $version ]] || fail "no version in Cargo.toml"
  DEB_VERSION=$version
  if commit=$(git log -1 --format=%h --abbrev=10 2> /dev/null); then
    if [[ $(git tag --points-at HEAD) != *"v$version"* ]]; then
      stamp=$(TZ=UTC git log -1 --format=%cd --date=format-local:%Y%m%d%H%M%S)
      DEB_VERSION=$version~$stamp.$commit
    fi
  fi
fi
: "${SOURCE_DATE_EPOCH:=$(git log -1 --format=%ct 2> /dev/null || date +%s)}"
export SOURCE_DATE_EPOCH
timestamp=$(date --utc --date "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)
# A placeholder: the domain does not exist (RFC 2606).
maintainer=${DEB_MAINTAINER:-The Weir maintainers <maintainers@weir.invalid>}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/weir debug=$work/weir-dbgsym doc=$work/weir/usr/share/doc/weir
mkdir -p "$root"/{DEBIAN,etc/default,etc/weir,etc/needrestart/conf.d} \
  "$root"/usr/{bin,lib/systemd/system,lib/systemd/network,lib/sysusers.d,lib/tmpfiles.d} \
  "$root"/usr/lib/{sysctl.d,modprobe.d} \
  "$root"/usr/share/{weir/examples,man/man1,lintian/overrides} "$doc" \
  "$root"/usr/share/{bash-completion/completions,zsh/vendor-completions} \
  "$root"/usr/share/fish/vendor_completions.d "$debug"/{DEBIAN,usr/share/doc} "$work/records"

# Programs without symbols, and the symbols by build ID, where debuggers look for them.
build_ids=()
for name in "${names[@]}"; do
  id=$(readelf --notes "$programs/$name" | sed -n 's/^ *Build ID: //p')
  [[ $id ]] || fail "$name has no build ID; the linker needs --build-id"
  build_ids+=("$id")
  symbols=$debug/usr/lib/debug/.build-id/${id:0:2}/${id:2}.debug
  mkdir -p "${symbols%/*}"
  objcopy --only-keep-debug "$programs/$name" "$symbols"
  chmod 644 "$symbols"
  objcopy --strip-unneeded "$programs/$name" "$root/usr/bin/$name"
  chmod 755 "$root/usr/bin/$name"
done

# The packages of the shared libraries, with the minimum versions that have the symbols in use.
# dpkg-shlibdeps requires the control file of a source package.
mkdir -p "$work/source/debian"
printf 'Source: weir\n\nPackage: weir\nArchitecture: amd64\n' > "$work/source/debian/control"
depends=$(cd "$work/source" &&
  dpkg-shlibdeps -O --ignore-missing-info "${names[@]/#/-e$root/usr/bin/}" 2> "$work/log" |
  sed -n 's/^shlibs:Depends=//p')
[[ $depends ]] || fail "dpkg-shlibdeps: $(cat "$work/log")"
distribution=$(. /etc/os-release && echo "$ID-${VERSION_ID-}")
shared=()
for package in $(sed 's/ *([^)]*)//g; s/,//g' <<< "$depends"); do
  version=$(dpkg-query --show --showformat='${Version}' "$package:amd64")
  shared+=(--shared "$package" "$version"
    "pkg:deb/${distribution%%-*}/$package@${version//+/%2B}?arch=amd64&distro=$distribution")
done
dpdk=$(pkg-config --modversion libdpdk)
dpdk_purl=pkg:generic/dpdk@$dpdk
if [[ $(pkg-config --variable=pcfiledir libdpdk) == /usr/lib/* ]]; then
  version=$(dpkg-query --show --showformat='${source:Version}' libdpdk-dev)
  dpdk_purl="pkg:deb/${distribution%%-*}/dpdk@${version//+/%2B}?arch=source&distro=$distribution"
fi

# SBOM, licenses, and the lists of crates, which become a section of each program.
"$programs/package" --out "$work/records" --version "$DEB_VERSION" \
  --timestamp "$timestamp" --dpdk "$dpdk" "$dpdk_purl" "${shared[@]}"
for name in "${names[@]}"; do
  objcopy --add-section ".dep-v0=$work/records/$name.dep-v0" "$root/usr/bin/$name"
done
install -m 644 "$work/records/copyright" "$doc/copyright"
cp "$work/records"/{sbom.cdx.json,third-party-licenses.txt} "$doc"
cp /usr/share/doc/libdpdk-dev/copyright "$doc/dpdk-copyright"
rust=$(rustc --print sysroot)/share/doc/rust/COPYRIGHT-library.html
[[ -e $rust ]] || fail "no $rust: the license of Rust's standard library; install Rust with rustup"
cp "$rust" "$doc/rust-library-copyright.html"

# Manual pages and completions come from the programs themselves.
"$programs/weir" man --out "$root/usr/share/man/man1"
for name in fastpath slowpath ebpf-fallback; do
  "$programs/$name" --man > "$root/usr/share/man/man1/$name.1"
done
"$programs/weir" completions bash > "$root/usr/share/bash-completion/completions/weir"
"$programs/weir" completions zsh > "$root/usr/share/zsh/vendor-completions/_weir"
"$programs/weir" completions fish > "$root/usr/share/fish/vendor_completions.d/weir.fish"

install -m 644 config/systemd/* "$root/usr/lib/systemd/system"
install -m 644 package/sysusers.conf "$root/usr/lib/sysusers.d/weir.conf"
install -m 644 package/tmpfiles.conf "$root/usr/lib/tmpfiles.d/weir.conf"
install -m 644 package/interfaces.link "$root/usr/lib/systemd/network/60-weir.link"
install -m 644 package/modprobe.conf "$root/usr/lib/modprobe.d/weir.conf"
install -m 644 package/sysctl.conf "$root/usr/lib/sysctl.d/60-weir.conf"
install -m 644 package/weir.toml package/services.toml "$root/etc/weir"
install -m 644 package/default "$root/etc/default/weir"
install -m 644 package/needrestart.conf "$root/etc/needrestart/conf.d/weir.conf"
install -m 644 package/lintian-overrides "$root/usr/share/lintian/overrides/weir"
cp -r docs/src "$doc/book"
# Not below /usr/share/doc, which minimal images of distributions leave out.
examples=$root/usr/share/weir/examples
cp -r config/examples/*.{toml,yaml,nft} config/{aws,azure,instances.json,KEYS.md} \
  config/{user-data,web-server}.yaml "$examples"
find "$examples" -type f -exec chmod 644 {} +
ln -s ../../weir/examples "$doc/examples"
# Rules for Prometheus and dashboards for Grafana, which reads the latter in place.
cp -r config/{prometheus,grafana} "$root/usr/share/weir"
find "$root/usr/share/weir"/{prometheus,grafana} -type f -exec chmod 644 {} +
formats=$("$programs/weir" upgrade formats)
layout=$(sed -n 's/^own //p' <<< "$formats")
store=$(sed -n 's/^store //p' <<< "$formats")
[[ $layout && $store ]] || fail "$programs/weir upgrade formats names no format of region or store"
echo "$layout" > "$root/usr/share/weir/region-layout"
echo "$store" > "$root/usr/share/weir/store-format"
echo "$DEB_VERSION" > "$root/usr/share/weir/version"
cp CHANGELOG.md "$doc/NEWS"
printf 'weir (%s) unstable; urgency=medium\n\n  * Changes: NEWS.gz.\n\n -- %s  %s\n' \
  "$DEB_VERSION" "$maintainer" "$(date --utc --rfc-email --date "@$SOURCE_DATE_EPOCH")" \
  > "$doc/changelog"
find "$doc" "$root/usr/share/man" -type f ! -name copyright \
  ! -name dpdk-copyright ! -path "$doc/book/*" -exec gzip --best --no-name {} +
ln -s weir "$debug/usr/share/doc/weir-dbgsym"

# The units to enable, which have an [Install] section, and all units.
mapfile -t all_units < <(cd config/systemd && ls)
mapfile -t units < <(cd config/systemd && grep -l '^\[Install\]' -- *)
for script in preinst postinst prerm postrm; do
  sed --expression "s/@UNITS@/${units[*]}/; s/@ALL_UNITS@/${all_units[*]}/" \
    --expression "s/@LAYOUT@/$layout/; s/@STORE@/$store/" "package/$script" \
    > "$root/DEBIAN/$script"
  chmod 755 "$root/DEBIAN/$script"
done
(cd "$root" && find etc -type f -printf '/%p\n' | LC_ALL=C sort) > "$root/DEBIAN/conffiles"

# Writes FOLDER/DEBIAN/md5sums and the package. Packages of unoptimized
# programs are for tests and get a fast compression.
pack() {
  (cd "$1" && find . -path ./DEBIAN -prune -o -type f -printf '%P\0' | LC_ALL=C sort --zero |
    xargs --null md5sum > DEBIAN/md5sums)
  find "$1" -newermt "@$SOURCE_DATE_EPOCH" -exec touch --no-dereference \
    --date "@$SOURCE_DATE_EPOCH" {} +
  local compression=(-Zxz)
  [[ $programs == */release ]] || compression=(-Zgzip -z1)
  dpkg-deb --root-owner-group "${compression[@]}" --build "$1" "$out" > /dev/null
}
# Size in KiB of the installed files.
size() {
  du --summarize --apparent-size --block-size=1024 --exclude=DEBIAN "$1" | cut -f 1
}

rm -f "$out"/weir_*.deb "$out"/weir-dbgsym_*.deb
depends="$depends, iproute2, systemd (>= 252)"
sed "s/@VERSION@/$DEB_VERSION/; s/@MAINTAINER@/$maintainer/; s/@SIZE@/$(size "$root")/
  s/@DEPENDS@/$depends/" package/control > "$root/DEBIAN/control"
pack "$root"
cat > "$debug/DEBIAN/control" <<CONTROL
Package: weir-dbgsym
Source: weir
Version: $DEB_VERSION
Auto-Built-Package: debug-symbols
Architecture: amd64
Maintainer: $maintainer
Installed-Size: $(size "$debug")
Depends: weir (= $DEB_VERSION)
Section: debug
Priority: optional
Description: debug symbols for weir
Build-Ids: ${build_ids[*]}
CONTROL
pack "$debug"
ls -1 "$out"/*.deb
