# Functions for tests that need another kernel than this machine's: an initial RAM disk of busybox
# and a few programs, booted in an emulated machine. Sourced by ebpf-fallback/guest.sh,
# slowpath/bgp/tcp-ao.sh and tests/nics/image.sh.

# vm_needs TOOL...: exits with a message that names a missing tool, if there is one.
vm_needs() {
  local tool
  for tool in qemu-system-x86_64 busybox cpio dpkg apt-get "$@"; do
    if ! command -v "$tool" > /dev/null; then
      echo "${0##*/}: no $tool; run: .ci/setup.sh guest" >&2
      exit 1
    fi
  done
}

# vm_kernel FOLDER: prints the path of the kernel of Debian 12's cloud images, 6.1, which it
# downloads to FOLDER/kernel unless it is there. FOLDER/kernel/lib/modules has its modules.
vm_kernel() (
  set -e # which a command substitution does not inherit
  cd "$1"
  exec 9< . # one download at a time
  flock 9
  kernels=(kernel/boot/vmlinuz-6.1.*)
  if [ ! -e "${kernels[0]}" ]; then
    package=$(apt-cache search --names-only '^linux-image-6\.1\..*-cloud-amd64$' \
      | cut -d ' ' -f 1 | sort -V | tail -1)
    if [ -z "$package" ]; then
      echo "${0##*/}: apt offers no linux-image-6.1.0-*-cloud-amd64 (Debian 12 has it);" \
        "run: apt-get update" >&2
      exit 1
    fi
    # Unpacked elsewhere and moved, so that a kernel without its modules is not taken for complete.
    rm -rf kernel unpacked
    apt-get download --quiet "$package" >&2
    dpkg -x "${package}"_*.deb unpacked
    mv unpacked kernel
    kernels=(kernel/boot/vmlinuz-6.1.*)
  fi
  echo "$PWD/${kernels[0]}"
)

# vm_test FOLDER TEST: builds the test of the package in this directory and prints its program's
# path. The build covers the whole workspace: for a single package, cargo would rebuild the
# dependencies with that package's features.
vm_test() {
  local program
  program=$(cargo test --workspace --test "$2" --no-run --message-format json \
    | grep -F "/$1#" | grep -F '"kind":["test"]' \
    | sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' | tail -1)
  if [ ! -x "$program" ]; then
    echo "${0##*/}: cargo built no program for the test $2 in $1" >&2
    exit 1
  fi
  echo "$program"
}

# vm_root ROOT APPLET...: creates a root file system of busybox with these applets.
vm_root() {
  local root=$1 applet
  rm -rf "$root"
  mkdir -p "$root"/{bin,proc,sys,dev,tmp}
  cp "$(command -v busybox)" "$root/bin/busybox"
  for applet in sh mount uname poweroff echo "${@:2}"; do
    ln -s busybox "$root/bin/$applet"
  done
}

# vm_add ROOT PROGRAM [NAME]: copies a program and its shared libraries.
vm_add() {
  local root=$1 library
  cp -L "$2" "$root/bin/${3:-${2##*/}}"
  # ldd fails for a static program, which has none.
  { ldd "$2" || true; } | awk '/=> \// { print $3 } /^\t\/lib/ { print $1 }' \
    | while read -r library; do
      mkdir -p "$root$(dirname "$library")"
      cp -L "$library" "$root$library"
    done
}

# vm_pack ROOT: writes the initial RAM disk, not compressed, to the standard output. Its files
# belong to root, whichever user builds it.
vm_pack() {
  (cd "$1" && find . | cpio --quiet -o -H newc --owner +0:+0)
}

# vm_boot FOLDER KERNEL MEMORY_MIB COMMAND: boots the kernel with FOLDER/root, runs COMMAND there,
# prints its output, and fails unless COMMAND succeeds.
vm_boot() {
  local folder=$1 kernel=$2 memory=$3 command=$4
  cat > "$folder/root/init" <<I
#!/bin/sh
mount -t proc none /proc
mount -t sysfs none /sys
mount -t devtmpfs none /dev
mount -t bpf none /sys/fs/bpf
mount -t tmpfs none /tmp
ip link set lo up
echo "kernel \$(uname -r)"
$command
echo "test ended with \$?"
poweroff -f
I
  chmod +x "$folder/root/init"
  vm_pack "$folder/root" | gzip -1 > "$folder/initrd.gz"
  timeout 600 qemu-system-x86_64 -machine q35 -accel tcg -cpu max -smp 1 -m "$memory" -nodefaults \
    -no-reboot -nographic -serial stdio -kernel "$kernel" -initrd "$folder/initrd.gz" \
    -append "console=ttyS0 quiet panic=-1" < /dev/null | tr -d '\r' \
    | sed -un 's/^.*\(kernel [0-9]\)/\1/; /^kernel [0-9]/,$p' | tee "$folder/output"
  grep -q '^test ended with 0$' "$folder/output"
}
