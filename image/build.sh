#!/usr/bin/env bash
# Builds the image: Debian with Weir and cloud-init, for machines with UEFI. Needs root, but neither
# loop devices nor file systems of the kernel: those of the image are made from directories.
#
#   image/build.sh PACKAGE [FOLDER]   # Weir's .deb; the default folder is target/image
#
# FOLDER gets weir.raw, weir.qcow2, weir.vhd, weir.packages (what is installed), weir.cdx.json (the
# same as an SBOM), SHA256SUMS, SHA256SUMS.sig if SIGN_KEY is the file of an ssh key, and weir.deb,
# the package. base.sh makes the Debian system; its result in FOLDER is used again until it or the
# recorded set changes.
#
# The same recorded set, package and files of this directory give the same bytes.
set -euo pipefail
umask 022
export LC_ALL=C
own=$(realpath -- "$(dirname "${BASH_SOURCE[0]}")")

fail() {
  printf 'build.sh: %s\n' "$@" >&2
  exit 1
}

[[ $# == 1 || $# == 2 ]] || fail "usage: image/build.sh PACKAGE [FOLDER]"
[[ -f $1 ]] || fail "no package $1; run: make image"
((EUID == 0)) || fail "not root: the tree has files of several users; use sudo"
for tool in mke2fs debugfs mkfs.vfat mcopy sfdisk qemu-img jq ssh-keygen; do
  [[ $(command -v "$tool") ]] || fail "no $tool; run: .ci/setup.sh image"
done
sign_key=${SIGN_KEY:+$(realpath -- "$SIGN_KEY")}
[[ ! $sign_key || -f $sign_key ]] || fail "SIGN_KEY: no file $sign_key"
deb=$(realpath -- "$1")
out=${2:-${CARGO_TARGET_DIR:-target}/image}
mkdir -p "$out"
out=$(realpath -- "$out")
cd "$own"

# Sizes in MiB. The root file system grows to the size of the machine's disk at the first boot.
disk_mib=2048 esp_mib=64

base_inputs=$(sha256sum base.sh packages.lock | sha256sum)
if [[ ! -e $out/base.tar || $(cat "$out/base.inputs" 2> /dev/null) != "$base_inputs" ]]; then
  rm -f "$out/base.inputs"
  ./base.sh "$out"
  echo "$base_inputs" > "$out/base.inputs"
fi

time=$(sed -n 's/^# recorded: //p' packages.lock)
SOURCE_DATE_EPOCH=$(date --utc --date "${time:0:8} ${time:9:2}:${time:11:2}:${time:13:2}" +%s)
export SOURCE_DATE_EPOCH

work=$(mktemp -d -p "$out")
trap 'rm -rf "$work"' EXIT
tree=$work/tree
mkdir "$tree"
tar --extract --numeric-owner --xattrs --xattrs-include='*' --directory "$tree" \
  --file "$out/base.tar"

# Identifiers follow from what is in the image.
inputs=$({
  cat packages.lock build.sh
  (cd root && find . -type f -print0 | sort --zero-terminated | xargs --null sha256sum)
  sha256sum < "$deb"
} | sha256sum)
uuid() {
  local hash
  hash=$(sha256sum <<< "$inputs $1")
  echo "${hash:0:8}-${hash:8:4}-4${hash:13:3}-8${hash:17:3}-${hash:20:12}"
}
root_uuid=$(uuid root)
esp_serial=$(uuid esp | tr a-f A-F)
esp_serial=${esp_serial:0:8}

# Weir, whose dependencies are in the recorded set: nothing is downloaded here.
cp "$deb" "$tree/weir.deb"
# With /proc, in its own namespaces.
in_tree() {
  local settings=(PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive)
  settings+=(SOURCE_DATE_EPOCH="$SOURCE_DATE_EPOCH")
  unshare --mount --pid --fork --root "$tree" --mount-proc env -i "${settings[@]}" "$@"
}
in_tree dpkg --install /weir.deb > "$work/log" 2>&1 || fail "dpkg: $(cat "$work/log")" \
  "A package that Weir needs must be in packages.list; then run: make image-lock"
rm "$tree/weir.deb"
read -r version architecture < \
  <(in_tree dpkg-query --show --showformat '${Version} ${Architecture}\n' weir)

# Settings of the image.
cp --recursive --no-target-directory --preserve=mode root "$tree"
chown --recursive root:root "$tree"/{usr/lib/weir-image,etc/{cloud/cloud.cfg.d,default/grub.d}}
cat > "$tree/etc/fstab" <<FSTAB
UUID=$root_uuid / ext4 defaults,errors=remount-ro 0 1
UUID=${esp_serial:0:4}-${esp_serial:4:4} /boot/efi vfat umask=0077,nofail 0 0
FSTAB
cat > "$tree/etc/apt/sources.list" <<'SOURCES'
deb http://deb.debian.org/debian bookworm main
deb http://deb.debian.org/debian bookworm-updates main
deb http://deb.debian.org/debian-security bookworm-security main
SOURCES
chmod 644 "$tree/etc/apt/sources.list"
printf 'weir %s\nDebian packages of %s\n' "$version" "$time" > "$tree/usr/lib/weir-image/release"
echo LANG=C.UTF-8 > "$tree/etc/default/locale"
in_tree systemctl --quiet enable systemd-networkd systemd-networkd-wait-online weir-user-data
# For volumes of LVM, which the image has not.
in_tree systemctl --quiet disable e2scrub_all.timer e2scrub_reap

# The boot loader reads /boot/grub/grub.cfg of the root file system, where the kernel is. This one
# is for the first boots; update-grub, which needs the disk, replaces it in the running machine.
kernel=$(cd "$tree/boot" && ls vmlinuz-*)
kernel=${kernel#vmlinuz-}
[[ -e $tree/boot/initrd.img-$kernel ]] || fail "not one kernel with its initrd: $kernel"
parameters=$(. root/etc/default/grub.d/10-weir-image.cfg && echo "$GRUB_CMDLINE_LINUX")
mkdir -p "$tree/boot/efi"
cat > "$tree/boot/grub/grub.cfg" <<GRUB
set timeout=0
menuentry 'Debian GNU/Linux' {
  search --no-floppy --fs-uuid --set=root $root_uuid
  linux /boot/vmlinuz-$kernel root=UUID=$root_uuid ro $parameters
  initrd /boot/initrd.img-$kernel
}
GRUB

# What identifies a machine, or this one: made at the first boot, by cloud-init and systemd.
rm -rf "$tree"/etc/ssh/ssh_host_* "$tree"/var/lib/{dbus/machine-id,systemd/random-seed} \
  "$tree"/var/lib/{weir,weir-tune,weir-upgrade,cloud,dhcp}/* "$tree"/dev/shm \
  "$tree"/var/lib/apt/lists/* "$tree"/var/cache/{apt,debconf,ldconfig,man}/* \
  "$tree"/{run,tmp,var/tmp,root}/{*,.[!.]*} \
  "$tree"/etc/{.pwd.lock,passwd-,group-,shadow-,gshadow-,subuid-,subgid-,udev/hwdb.bin} \
  "$tree"/var/lib/systemd/{timers,coredump,linger} "$tree"/etc/resolv.conf.*
find "$tree/var/log" -type f -delete
# The seed of debconf's answers and dpkg's former lists.
rm -f "$tree"/var/lib/dpkg/*-old "$tree"/var/backups/* "$tree"/etc/apt/apt.conf.d/99mmdebstrap
: > "$tree/etc/machine-id"
chmod 444 "$tree/etc/machine-id"
echo localhost > "$tree/etc/hostname"
chmod 644 "$tree/etc/hostname"
printf '127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n' > "$tree/etc/hosts"
mkdir -p "$tree/var/log/journal" "$tree"/var/cache/{apt/archives/partial,debconf,ldconfig,man}
mkdir -p "$tree/var/lib/apt/lists/partial"

# What is installed: the recorded set and Weir.
sum=$(sha256sum < "$deb")
{
  grep -v '^#' packages.lock
  echo "weir $version $architecture ${sum%% *}"
} | sort > "$work/weir.packages"
stamp=$(date --utc --date "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)
jq --null-input --raw-input --arg time "$stamp" --arg version "$version" \
  --arg serial "urn:uuid:$(uuid sbom)" '
  { bomFormat: "CycloneDX", specVersion: "1.5", serialNumber: $serial, version: 1,
    metadata: { timestamp: $time,
      component: { type: "operating-system", name: "weir-image", version: $version } },
    components: [ inputs | split(" ") | {
      type: (if .[0] == "weir" then "application" else "library" end),
      "bom-ref": (.[0] + "@" + .[1]), name: .[0], version: .[1],
      hashes: [ { alg: "SHA-256", content: .[3] } ],
      purl: (if .[0] == "weir" then "pkg:generic/weir@" + (.[1] | @uri)
        else "pkg:deb/debian/" + (.[0] | @uri) + "@" + (.[1] | @uri) + "?arch=" + .[2]
          + "&distro=debian-12" end) } ] }' "$work/weir.packages" > "$work/weir.cdx.json"

# The root file system. mke2fs takes access and change times from the tree, which are those of this
# build: they are set afterwards, in the inodes that it used, which it numbers without gaps.
find "$tree" -newermt "@$SOURCE_DATE_EPOCH" -exec touch --no-dereference \
  --date "@$SOURCE_DATE_EPOCH" {} +
root_mib=$((disk_mib - esp_mib - 2))
export E2FSPROGS_FAKE_TIME=$SOURCE_DATE_EPOCH
mke2fs -q -t ext4 -L weir-root -U "$root_uuid" -d "$tree" \
  -E "hash_seed=$(uuid hash),lazy_itable_init=0,lazy_journal_init=0" \
  "$work/root.ext4" "${root_mib}M" > "$work/log" 2>&1 || fail "mke2fs: $(cat "$work/log")"
dumpe2fs -h "$work/root.ext4" 2> "$work/log" | awk -v time="$SOURCE_DATE_EPOCH" '
  /^Inode count:/ { inodes = $3 }
  /^Free inodes:/ { free = $3 }
  END {
    for (inode = 2; inode <= inodes - free; inode++) {
      if (inode > 2 && inode < 11) continue
      print "set_inode_field <" inode "> ctime @" time
      print "set_inode_field <" inode "> atime @" time
    }
  }' > "$work/times"
debugfs -w -f "$work/times" "$work/root.ext4" > "$work/log" 2>&1 ||
  fail "debugfs: $(tail -3 "$work/log")"
e2fsck -fn "$work/root.ext4" > "$work/log" 2>&1 || fail "e2fsck: $(cat "$work/log")"

# The EFI system partition: Debian's signed shim and GRUB, at the path of firmware without variables
# and where grub-install updates them.
mkdir -p "$work/esp/EFI"/{BOOT,debian}
shim=$tree/usr/lib/shim/shimx64.efi.signed grub=$tree/usr/lib/grub/x86_64-efi-signed
cp "$shim" "$work/esp/EFI/BOOT/BOOTX64.EFI"
cp "$shim" "$work/esp/EFI/debian/shimx64.efi"
for folder in BOOT debian; do
  cp "$grub/grubx64.efi.signed" "$work/esp/EFI/$folder/grubx64.efi"
done
cat > "$work/esp/EFI/debian/grub.cfg" <<GRUB
search.fs_uuid $root_uuid root
set prefix=(\$root)/boot/grub
configfile \$prefix/grub.cfg
GRUB
find "$work/esp" -exec touch --date "@$SOURCE_DATE_EPOCH" {} +
truncate --size "${esp_mib}M" "$work/esp.fat"
export TZ=UTC MTOOLS_SKIP_CHECK=1
# --invariant also sets a serial number, which -i replaces if it comes later.
mkfs.vfat --invariant -F 32 -i "$esp_serial" -n ESP "$work/esp.fat" > "$work/log" 2>&1 ||
  fail "mkfs.vfat: $(cat "$work/log")"
mmd -i "$work/esp.fat" ::/EFI ::/EFI/BOOT ::/EFI/debian
for file in BOOT/BOOTX64.EFI BOOT/grubx64.efi debian/{shimx64.efi,grubx64.efi,grub.cfg}; do
  mcopy -m -i "$work/esp.fat" "$work/esp/EFI/$file" "::/EFI/$file"
done

# The disk.
raw=$work/weir.raw
truncate --size "${disk_mib}M" "$raw"
sfdisk --quiet "$raw" <<PARTITIONS
label: gpt
label-id: $(uuid disk)
unit: sectors
first-lba: 2048
start=1MiB, size=${esp_mib}MiB, type=uefi, name=esp, uuid=$(uuid esp-partition)
size=${root_mib}MiB, type=linux, name=root, uuid=$(uuid root-partition)
PARTITIONS
place() {
  dd if="$1" of="$raw" bs=1M seek="$2" conv=sparse,notrunc status=none
}
place "$work/esp.fat" 1
place "$work/root.ext4" $((1 + esp_mib))
rm "$work"/{esp.fat,root.ext4,times}

qemu-img convert -f raw -O qcow2 -c "$raw" "$work/weir.qcow2"

# Azure takes fixed VHDs of whole MiB. qemu-img writes a random identifier and the time of the
# conversion into the footer, the last 512 bytes.
vhd=$work/weir.vhd
qemu-img convert -f raw -O vpc -o subformat=fixed,force_size=on "$raw" "$vhd"
footer=$(($(stat --format %s "$vhd") - 512))
patch() {
  local hex=$2
  printf '%b' "$(sed 's/../\\x&/g' <<< "$hex")" |
    dd of="$vhd" bs=1 seek=$((footer + $1)) conv=notrunc status=none
}
patch 24 "$(printf %08x $((SOURCE_DATE_EPOCH - 946684800)))"
patch 68 "$(uuid vhd | tr -d -)"
patch 64 00000000
patch 64 "$(tail -c 512 "$vhd" | od -An -v -tu1 |
  awk '{ for (i = 1; i <= NF; i++) sum += $i } END { printf "%08x", 4294967295 - sum }')"

cd "$work"
sha256sum weir.raw weir.qcow2 weir.vhd weir.packages weir.cdx.json > SHA256SUMS
rm -f "$out/SHA256SUMS.sig"
if [[ $sign_key ]]; then
  ssh-keygen -q -Y sign -f "$sign_key" -n weir-image SHA256SUMS 2> log || fail "$(cat log)"
  mv SHA256SUMS.sig "$out"
fi
mv weir.raw weir.qcow2 weir.vhd weir.packages weir.cdx.json SHA256SUMS "$out"
[[ $deb -ef $out/weir.deb ]] || cp "$deb" "$out/weir.deb"
ls -1sh "$out"/weir.* "$out"/SHA256SUMS*
