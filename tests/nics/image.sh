#!/bin/bash
# Builds what the virtual machine of the tests in tests/nics boots: FOLDER/vmlinuz, Debian 12's
# kernel, and FOLDER/initrd, an initial RAM disk of busybox, Weir's programs from the directory
# PROGRAMS, and the kernel's modules for virtio and vfio. The tests run this script themselves.
#
#   tests/nics/image.sh PROGRAMS FOLDER
set -euo pipefail
umask 022 # Weir rejects a region below a folder that others can write
programs=$(cd "$1" && pwd)
mkdir -p "$2"
folder=$(cd "$2" && pwd)
cd "$(dirname "$0")/../.."
. .ci/vm.sh

vm_needs ip strip flock
kernels=${CARGO_TARGET_DIR:-target}/guest
mkdir -p "$kernels"
kernel=$(vm_kernel "$kernels")
ln -sf "$kernel" "$folder/vmlinuz"

root=$folder/root
vm_root "$root" cat cmp dmesg find grep head httpd insmod kill ls mkdir nc pidof printf readlink \
  rm sleep stty tail timeout touch wc wget
for program in fastpath slowpath weir weir-gateway; do
  if [ ! -x "$programs/$program" ]; then
    echo "image.sh: no $program in $programs; run: make nics" >&2
    exit 1
  fi
  vm_add "$root" "$programs/$program"
  # Without debug information the programs, which the guest copies when it boots, are a third as
  # large.
  strip "$root/bin/$program"
done
vm_add "$root" "$(command -v ip)"
# ldd does not list this library, because glibc loads it only when a thread is cancelled.
vm_add "$root" /lib/x86_64-linux-gnu/libgcc_s.so.1
mkdir -p "$root"/{boot/grub,etc/default/grub.d,etc/weir,modules,run/netns,usr/sbin,var,www}
ln -s /run "$root/var/run"
echo root:x:0: > "$root/etc/group"

# In the order of their dependencies. The numbers in their file names keep it for insmod.
modules=(
  drivers/virtio/{virtio_ring,virtio,virtio_pci_legacy_dev,virtio_pci_modern_dev,virtio_pci}
  net/core/failover drivers/net/{net_failover,virtio_net,tun}
  virt/lib/irqbypass drivers/vfio/{vfio,vfio_virqfd,vfio_iommu_type1}
  drivers/vfio/pci/{vfio-pci-core,vfio-pci}
)
for index in "${!modules[@]}"; do
  module=${modules[index]}
  cp "${kernel%/boot/*}/lib/modules/${kernel##*/vmlinuz-}/kernel/$module.ko" \
    "$root/modules/$((index + 10))-${module##*/}.ko"
done

# Those parts of Debian's GRUB, systemd-sysctl and systemd-tmpfiles that the drop-in files of `weir
# tune` need: update-grub evaluates the files in their order; boot-settings writes the values at
# boot.
cat > "$root/usr/sbin/update-grub" <<'G'
#!/bin/sh
set -e
. /etc/default/grub
for file in /etc/default/grub.d/*.cfg; do
  [ ! -e "$file" ] || . "$file"
done
echo "$GRUB_CMDLINE_LINUX" > /boot/grub/cmdline
G
cat > "$root/bin/boot-settings" <<'S'
#!/bin/sh
cat /etc/sysctl.d/*.conf 2> /dev/null | grep -v '^#' | while IFS='= ' read -r key value; do
  echo "$value" > "/proc/sys/${key#-}"
done
cat /etc/tmpfiles.d/*.conf 2> /dev/null | grep '^w ' | while read -r _ path _ _ _ _ value; do
  echo "$value" > "$path"
done
S
chmod +x "$root/usr/sbin/update-grub" "$root/bin/boot-settings"

# The machine's second serial port is a shell: src/guest.rs writes commands and reads their output.
# The first one is the kernel's console.
cat > "$root/init" <<'I'
#!/bin/sh
export PATH=/bin:/usr/sbin HOME=/
mount -t proc none /proc
mount -t sysfs none /sys
mount -t devtmpfs none /dev
mount -t tmpfs none /run
mount -t tmpfs none /tmp
mkdir -p /run/netns /dev/hugepages
ip link set lo up
for module in /modules/*; do
  insmod "$module" || echo "insmod $module failed"
done
boot-settings
# Open until the end: the driver discards what arrives while nothing has the port open.
exec 3<> /dev/ttyS1
stty -F /dev/ttyS1 raw -echo
echo ready >&3
# A script and not the input, so that the shell is not an interactive one.
sh /dev/ttyS1 >&3
echo "the shell at the second serial port ended with $?"
poweroff -f
I
chmod +x "$root/init"
vm_pack "$root" > "$folder/initrd"
rm -r "$root"
