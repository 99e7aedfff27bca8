#!/usr/bin/env bash
# Makes the Debian system of the image, without Weir: FOLDER/base.tar, and the list of its packages,
# FOLDER/base.packages.
#
#   image/base.sh FOLDER            # the recorded set of packages, packages.lock
#   image/base.sh --record FOLDER   # the newest ones of packages.list, which it then records
#
# MIRROR and SECURITY_MIRROR are the archives, by default those of this machine's apt. SNAPSHOT=1
# takes the recorded set from snapshot.debian.org, also when the mirrors have moved on. Downloaded
# packages are kept in FOLDER/debs. Needs root.
set -euo pipefail
umask 022
own=$(realpath -- "$(dirname "${BASH_SOURCE[0]}")")

fail() {
  printf 'base.sh: %s\n' "$@" >&2
  exit 1
}

record=
if [[ ${1-} == --record ]]; then
  record=1
  shift
fi
[[ $# == 1 && $1 != -* ]] || fail "usage: image/base.sh [--record] FOLDER"
((EUID == 0)) || fail "not root: mmdebstrap makes a tree with files of several users; use sudo"
for tool in mmdebstrap apt-get; do
  [[ $(command -v "$tool") ]] || fail "no $tool; run: .ci/setup.sh image"
done
mkdir -p "$1"
out=$(realpath -- "$1")
cd "$own"
suite=bookworm

# The archive of this machine with this label, so that mirrors of a company are used.
of_apt() {
  apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' "Label: $1" | sort -u | head -1
}
if [[ $record ]]; then
  time=$(date --utc +%Y%m%dT%H%M%SZ)
else
  time=$(sed -n 's/^# recorded: //p' packages.lock)
  [[ $time =~ ^[0-9]{8}T[0-9]{6}Z$ ]] || fail "packages.lock has no time; run: make image-lock"
fi
options=
if [[ ${SNAPSHOT-} ]]; then
  MIRROR=http://snapshot.debian.org/archive/debian/$time
  SECURITY_MIRROR=http://snapshot.debian.org/archive/debian-security/$time
  # The indexes of that day have expired; their signatures are checked.
  options='[check-valid-until=no] '
fi
: "${MIRROR:=$(of_apt Debian)}" "${SECURITY_MIRROR:=$(of_apt Debian-Security)}"
: "${MIRROR:=http://deb.debian.org/debian}"
: "${SECURITY_MIRROR:=http://deb.debian.org/debian-security}"

# All files get this time at most, so that the tree depends on the recorded set only.
SOURCE_DATE_EPOCH=$(date --utc --date "${time:0:8} ${time:9:2}:${time:11:2}:${time:13:2}" +%s)
export SOURCE_DATE_EPOCH

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mapfile -t named < <(sed 's/#.*//; s/[[:space:]]//g; /^$/d' packages.list)
wanted=("${named[@]}")
if [[ ! $record ]]; then
  mapfile -t wanted < <(awk '!/^#/ { print $1 "=" $2 }' packages.lock)
fi
# grub-install, after updates: also to the path that firmware looks for without variables, which it
# leaves alone.
cat > "$work/answers" <<'ANSWERS'
grub-efi-amd64 grub2/force_efi_extra_removable boolean true
grub-efi-amd64 grub2/update_nvram boolean false
ANSWERS
# Runs on the finished tree, $1, while it has the archive's indexes: prints the installed packages
# with the sums in these indexes, whose signatures apt has verified.
cat > "$work/list" <<'LIST'
set -euo pipefail
dpkg-query --admindir="$1/var/lib/dpkg" --show \
  --showformat '${Package} ${Version} ${Architecture}\n' | LC_ALL=C sort > "$2.installed"
awk -v OFS=' ' '
  NR == FNR { installed[$0] = 1; next }
  /^Package: / { package = $2 }
  /^Version: / { version = $2 }
  /^Architecture: / { architecture = $2 }
  /^SHA256: / {
    key = package " " version " " architecture
    if (key in installed) { print key, $2; delete installed[key] }
  }' "$2.installed" "$1"/var/lib/apt/lists/*_Packages | LC_ALL=C sort > "$2"
LIST
# Only the packages of packages.list are there for their own sake: apt may remove others when
# nothing needs them any more, such as former kernels.
cat > "$work/mark" <<MARK
set -euo pipefail
chroot "\$1" dpkg-query --show --showformat '\${Package}\n' | xargs chroot "\$1" apt-mark auto
chroot "\$1" apt-mark manual ${named[*]}
MARK

mkdir -p "$out/debs"
archives=/var/cache/apt/archives
if ! mmdebstrap --quiet --variant=minbase --aptopt='Apt::Install-Recommends "false"' \
  --skip=download/empty --skip=essential/unlink \
  --setup-hook="mkdir -p \"\$1\"$archives" \
  --setup-hook="sync-in '$out/debs' $archives" \
  --essential-hook="chroot \"\$1\" debconf-set-selections < '$work/answers'" \
  --include="$(IFS=, && echo "${wanted[*]}")" \
  --customize-hook="sync-out $archives '$out/debs'" \
  --customize-hook="bash '$work/list' \"\$1\" '$work/packages'" \
  --customize-hook="bash '$work/mark' \"\$1\" > /dev/null" \
  "$suite" "$work/base.tar" \
  "deb $options$MIRROR $suite main" "deb $options$MIRROR $suite-updates main" \
  "deb $options$SECURITY_MIRROR $suite-security main"; then
  fail "mmdebstrap failed with $MIRROR" \
    "If a recorded version was not found, the mirror has newer ones: take the recorded set from" \
    "snapshot.debian.org (SNAPSHOT=1), or record the new one (make image-lock)."
fi
rm -rf "$out/debs"/{lock,partial}

missing=$(cut -d ' ' -f 1-3 "$work/packages" | comm -13 - "$work/packages.installed")
[[ ! $missing ]] || fail "not in the archive's indexes: $missing"
if [[ $record ]]; then
  {
    echo "# The packages of the image's Debian: name, version, architecture, SHA-256. Written by"
    echo "# make image-lock; make image installs exactly these."
    echo "# recorded: $time"
    cat "$work/packages"
  } > packages.lock
elif ! difference=$(diff <(grep -v '^#' packages.lock) "$work/packages"); then
  fail "the tree is not the recorded set of packages:" "$difference" \
    "Take the recorded set with SNAPSHOT=1, or record the new one: make image-lock"
fi
mv "$work/packages" "$out/base.packages"
mv "$work/base.tar" "$out/base.tar"
