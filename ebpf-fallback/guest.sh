#!/bin/bash
# Runs tests/journey.rs on Debian 12's own kernel, 6.1, in a virtual machine: its verifier is
# another one than that of newer kernels, and knows less. Prints what the test prints (how many
# instructions were verified of each stage), and fails as it fails. The machine is emulated, so that
# this runs wherever a program can be built; that takes a minute or two, and says nothing of speed.
#
#   make guest                          # installs the emulator, and:
#   ebpf-fallback/guest.sh [FOLDER]     # default: target/guest, which keeps the kernel
set -euo pipefail
cd "$(dirname "$0")/.."

target=${CARGO_TARGET_DIR:-target}
folder=${1:-$target/guest}
for tool in qemu-system-x86_64 busybox cpio dpkg apt-get cargo; do
  if ! command -v "$tool" > /dev/null; then
    echo "guest.sh: no $tool; type: apt-get install qemu-system-x86 busybox-static cpio" >&2
    exit 1
  fi
done
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

# cargo says itself where the test's program is.
test=$(cargo test --package ebpf-fallback --test journey --no-run --message-format json \
  | grep '"kind":\["test"\]' | sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' | tail -1)
if [ ! -x "$test" ]; then
  echo "guest.sh: cargo built no program of tests/journey.rs" >&2
  exit 1
fi

root=$folder/root
rm -rf "$root"
mkdir -p "$root"/{bin,proc,sys,dev,tmp}
cp "$(command -v busybox)" "$root/bin/busybox"
for applet in sh mount ip uname poweroff echo; do
  ln -s busybox "$root/bin/$applet"
done
cp "$test" "$root/bin/journey"
ldd "$test" | awk '/=> \// { print $3 } /^\t\/lib/ { print $1 }' | while read -r library; do
  mkdir -p "$root$(dirname "$library")"
  cp -L "$library" "$root$library"
done
cat > "$root/init" <<'I'
#!/bin/sh
mount -t proc none /proc
mount -t sysfs none /sys
mount -t devtmpfs none /dev
mount -t bpf none /sys/fs/bpf
ip link set lo up
echo "kernel $(uname -r)"
journey --nocapture --test-threads=1 2>&1
echo "journey ended with $?"
poweroff -f
I
chmod +x "$root/init"
(cd "$root" && find . | cpio --quiet -o -H newc | gzip -1) > "$folder/initrd.gz"

timeout 600 qemu-system-x86_64 -machine q35 -accel tcg -cpu max -smp 1 -m 1024 -nodefaults \
  -no-reboot -nographic -serial stdio -kernel "${kernels[0]}" -initrd "$folder/initrd.gz" \
  -append "console=ttyS0 quiet panic=-1" < /dev/null | tr -d '\r' \
  | sed -un 's/^.*\(kernel 6\.\)/\1/; /^kernel 6/,$p' | tee "$folder/output"
grep -q '^journey ended with 0$' "$folder/output"
