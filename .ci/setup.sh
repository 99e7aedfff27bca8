#!/usr/bin/env bash
# Installs missing packages and tools for building, testing and demonstrating Weir. Fast and silent
# if nothing is missing, so other commands call it first.
set -euo pipefail

settings=$(dirname "${BASH_SOURCE[0]}")/../.cargo/config.toml
if [[ $(uname --machine) == x86_64 ]] && ! grep -qw avx2 /proc/cpuinfo &&
  grep -q '^[^#]*target-cpu=x86-64-v3' "$settings"; then
  echo "setup: no AVX2: Weir is built for x86-64-v3 (2013 or later); for an older processor" >&2
  echo "  set target-cpu in .cargo/config.toml to x86-64-v2" >&2
  exit 1
fi

# The purpose: `docs` needs mdbook only, `infrastructure` npm and Python, `dashboards` npm and a
# Prometheus besides what the demo needs, `dashboards pictures` a browser in addition, `dpdk` and
# `debian13` what builds DPDK or a chroot, `demo`, `demo xdp` and `deb` few packages, tests (no
# argument) all of these, `guest`, `package-test`, `boot-test`, `image` and `check` some in
# addition.
purpose=${1-}

packages=(
  # A linker and a C compiler (the DPDK shim, the benchmarks' C loop).
  gcc libc6-dev make pkg-config
  # DPDK's headers and archives.
  libdpdk-dev
  # The lab: namespaces and veth, sysctl, offloads, packet filters, setpriv; and a client.
  iproute2 procps ethtool nftables util-linux curl
)
if [[ $purpose == docs ]]; then
  packages=(gcc libc6-dev)
elif [[ $purpose == infrastructure ]]; then
  packages=(python3-venv)
  command -v npm > /dev/null || packages+=(nodejs npm)
elif [[ $purpose == dpdk ]]; then
  packages=(
    # DPDK's build, and Debian's tools for source packages.
    gcc libc6-dev meson ninja-build pkg-config python3-pyelftools dpkg-dev xz-utils
    # Memory of NUMA nodes, strlcpy; rdma-core for MANA and mlx5.
    libnuma-dev libbsd-dev libibverbs-dev
    # The drivers net_pcap and net_af_xdp.
    libpcap-dev libxdp-dev libbpf-dev libelf-dev zlib1g-dev
  )
elif [[ $purpose == deb ]]; then
  # Programs are stripped with binutils; dpkg-shlibdeps finds the packages of shared libraries.
  packages+=(binutils dpkg-dev)
elif [[ $purpose == dashboards ]]; then
  # A BGP neighbor, certificates.
  packages+=(prometheus bird2 openssl)
  # What draws and reduces the pictures of the book.
  [[ ${2-} != pictures ]] || packages+=(chromium fonts-dejavu-core pngquant tmux)
  command -v npm > /dev/null || packages+=(nodejs npm)
elif [[ $purpose != demo ]]; then
  packages+=(
    # dpdk-testpmd, the generator and a reference of the benchmarks.
    dpdk-dev
    # An independent packet decoder.
    tshark
    # Real routers as BGP and BFD neighbors, which tests start in namespaces.
    frr bird2 gobgpd
    # API tests: certificates, and a Python environment for schemathesis.
    openssl python3-venv
    # promtool checks the metrics, systemd-analyze the units, systemd-nspawn boots them.
    prometheus systemd systemd-container
    # strace injects SIGKILL at a command's system calls.
    strace
    # The terminal of tests of weir top.
    tmux
    # For a command of the book.
    jq
  )
fi
# For `make guest` and `make nics`: another kernel in a virtual machine.
if [[ $purpose == guest ]]; then
  packages+=(qemu-system-x86 busybox-static cpio xz-utils)
fi
# For `make package-test`: the package's checker, trees of Debian, containers with systemd.
if [[ $purpose == package-test ]]; then
  packages+=(binutils dpkg-dev lintian mmdebstrap systemd-container)
fi
# For `make boot-test`: trees of Debian and their kernel, disks of them, a virtual machine.
if [[ $purpose == boot-test ]]; then
  packages+=(binutils dpkg-dev mmdebstrap systemd-container e2fsprogs qemu-system-x86)
fi
# For `make image` and `image-test`: a tree of Debian, file systems and disks made of it, signatures,
# and a virtual machine with UEFI.
if [[ $purpose == image ]]; then
  packages+=(binutils dpkg-dev mmdebstrap e2fsprogs dosfstools mtools fdisk qemu-utils jq)
  packages+=(openssh-client qemu-system-x86 ovmf)
fi
# For `make debian13`: a chroot of another release.
if [[ $purpose == debian13 ]]; then
  packages=(mmdebstrap util-linux)
fi

# bindgen reads DPDK's headers with any libclang that comes with its own headers.
has_libclang() {
  local folder
  for folder in /usr/lib/llvm-*/lib; do
    if compgen -G "$folder/libclang*.so*" > /dev/null &&
      compgen -G "$folder/clang/*/include/stddef.h" > /dev/null; then
      return 0
    fi
  done
  return 1
}

missing=()
if command -v dpkg-query > /dev/null; then
  installed=" $(dpkg-query --show --showformat='${db:Status-Status}=${Package} ' \
    "${packages[@]}" 2> /dev/null || true)"
  for package in "${packages[@]}"; do
    [[ $installed == *" installed=$package "* ]] || missing+=("$package")
  done
else
  echo "setup: no dpkg-query: not a Debian system; install these packages or their equivalents:" >&2
  echo "  ${packages[*]} libclang1-19 libclang-common-19-dev" >&2
  exit 1
fi
# The smallest packages, and of a version that Debian 12 and 13 have; clang itself is not needed.
[[ $purpose =~ ^(docs|infrastructure|dpdk|debian13)$ ]] || has_libclang ||
  missing+=(libclang1-19 libclang-common-19-dev)

if ((${#missing[@]})); then
  as_root=()
  if ((EUID != 0)); then
    if ! command -v sudo > /dev/null; then
      echo "setup: not root, and sudo is not installed; run as root:" >&2
      echo "  apt-get install --no-install-recommends ${missing[*]}" >&2
      exit 1
    fi
    as_root=(sudo)
  fi
  echo "setup: installing ${missing[*]}"
  "${as_root[@]}" apt-get update -qq
  # The routers' packages would start their daemons on this machine. invoke-rc.d runs this policy
  # script before it starts a service; an existing one is not replaced.
  deny=/usr/sbin/policy-rc.d
  if ! [[ -e $deny ]]; then
    trap '"${as_root[@]}" rm -f "$deny"' EXIT
    printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee "$deny" > /dev/null
    "${as_root[@]}" chmod 755 "$deny"
  fi
  # noninteractive: tshark's package asks which users may capture.
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install --yes --no-install-recommends -qq "${missing[@]}" > /dev/null
  if [[ $(trap -p EXIT) ]]; then
    "${as_root[@]}" rm "$deny"
    trap - EXIT
  fi
  # Do not start them at the next boot either, unless they were installed before.
  for unit in frr:frr bird2:bird gobgpd:gobgpd prometheus:prometheus; do
    if [[ " ${missing[*]} " == *" ${unit%:*} "* ]] && command -v systemctl > /dev/null; then
      "${as_root[@]}" systemctl --quiet disable "${unit#*:}" 2> /dev/null ||
        echo "setup: ${unit#*:} will start at the next boot; run: systemctl disable ${unit#*:}"
    fi
  done
fi

# For `make infrastructure`: HashiCorp's parser, schemas of Terraform's providers, models of both
# clouds, a grammar of Bicep, and the cloud-init of this Debian. cloud-init is only unpacked: its
# package would configure this machine at the next boot.
if [[ $purpose == infrastructure ]]; then
  cd "$(dirname "${BASH_SOURCE[0]}")/.."
  tools=.tools/infrastructure
  python=(
    botocore==1.44.8 moto==5.2.5
    # What cloud-init imports.
    attrs==26.1.0 certifi==2026.10.19.post1 charset-normalizer==3.5.3 configobj==5.0.9 idna==3.20
    Jinja2==3.1.6 jsonpatch==1.33 jsonpointer==3.0.0 jsonschema==4.25.1
    jsonschema-specifications==2025.9.1 MarkupSafe==3.0.4 oauthlib==3.3.1 PyYAML==6.0.3
    referencing==0.37.0 requests==2.32.5 rpds-py==2026.9.1 typing_extensions==4.16.0 urllib3==2.8.0
  )
  state=$(sha256sum tests/infrastructure/package-lock.json)\ ${python[*]}
  if [[ $(cat "$tools/installed" 2> /dev/null) != "$state" ]]; then
    echo "setup: installing models of the clouds into $tools (a minute, 700 MB)"
    rm -rf "$tools"
    mkdir -p "$tools"
    cp tests/infrastructure/package{,-lock}.json "$tools"
    # No install scripts, and no peer dependencies: only files of the packages are read.
    npm ci --prefix "$tools" --silent --no-audit --no-fund --ignore-scripts --legacy-peer-deps
    rm "$tools"/node_modules/@cdktn/provider-*/.jsii
    python3 -m venv "$tools/venv"
    "$tools/venv/bin/pip" install --quiet --disable-pip-version-check --no-deps \
      --target "$tools/python" "${python[@]}"
    if ! (cd "$tools" && apt-get download -qq cloud-init 2> /dev/null); then
      as_root=()
      ((EUID == 0)) || as_root=(sudo)
      "${as_root[@]}" apt-get update -qq
      (cd "$tools" && apt-get download -qq cloud-init)
    fi
    dpkg -x "$tools"/cloud-init_*.deb "$tools/cloud-init"
    echo "$state" > "$tools/installed"
  fi
  ln -sfn ../../.tools/infrastructure/node_modules tests/infrastructure/node_modules
  exit 0
fi

# For `make dashboards`: Grafana's types, and a compiler that checks them.
if [[ $purpose == dashboards ]]; then
  cd "$(dirname "${BASH_SOURCE[0]}")/.."
  tools=.tools/dashboards
  state=$(sha256sum tests/dashboards/package-lock.json)
  if [[ $(cat "$tools/installed" 2> /dev/null) != "$state" ]]; then
    echo "setup: installing the types of Grafana into $tools (seconds, 50 MB)"
    rm -rf "$tools"
    mkdir -p "$tools"
    cp tests/dashboards/package{,-lock}.json "$tools"
    (cd "$tools" && npm ci --silent --no-audit --no-fund --ignore-scripts --legacy-peer-deps)
    echo "$state" > "$tools/installed"
  fi
fi

if ! command -v cargo > /dev/null; then
  echo "setup: no cargo in PATH; install Rust 1.95 or later: https://rustup.rs" >&2
  exit 1
fi

if [[ $purpose == demo && ${2-} != xdp || $purpose =~ ^(dpdk|debian13)$ ]]; then
  exit 0
fi

# For `make docs`: the book as HTML.
if [[ $purpose == docs ]]; then
  cd "$(dirname "${BASH_SOURCE[0]}")/.."
  mdbook=0.5.4
  if [[ $(.tools/bin/mdbook --version 2> /dev/null) != "mdbook v$mdbook" ]]; then
    echo "setup: installing mdbook $mdbook into .tools, for make docs (minutes)"
    cargo install mdbook --version "$mdbook" --locked --quiet --root .tools \
      --no-default-features --features search --target-dir target/mdbook
    rm -r target/mdbook
  fi
  exit 0
fi

# The XDP programs: Rust builds its core library for BPF from source, and bpf-linker links them.
# This version uses the compiler's LLVM, later ones need a separate LLVM. It is installed below
# the clone, so that it does not replace another version.
cd "$(dirname "${BASH_SOURCE[0]}")/.."
linker=0.10.2
if ! [[ -d $(rustc --print sysroot)/lib/rustlib/src/rust/library/core ]]; then
  if ! command -v rustup > /dev/null; then
    echo "setup: no rust-src in $(rustc --print sysroot): the XDP programs are built with the" >&2
    echo "  sources of Rust's core library; install rustup, or rust-src there" >&2
    exit 1
  fi
  echo "setup: installing rust-src, for the core library of the XDP programs (seconds)"
  rustup component add rust-src
fi
if [[ $(PATH=.tools/bin:$PATH bpf-linker --version 2> /dev/null) != "bpf-linker $linker" ]]; then
  echo "setup: installing bpf-linker $linker into .tools, for the XDP programs (a minute or two)"
  cargo install bpf-linker --version "$linker" --locked --quiet --root .tools \
    --target-dir target/bpf-linker
  rm -r target/bpf-linker
fi

if [[ $purpose =~ ^(demo|deb|dashboards)$ ]]; then
  exit 0
fi

# For `make package-test`: validates the SBOM.
cyclonedx=11.12.0
if [[ $purpose == package-test &&
  $(.tools/cyclonedx/bin/pip show cyclonedx-python-lib 2> /dev/null) != *"Version: $cyclonedx"* ]]; then
  echo "setup: installing cyclonedx-python-lib $cyclonedx into .tools (a minute)"
  rm -rf .tools/cyclonedx
  python3 -m venv .tools/cyclonedx
  .tools/cyclonedx/bin/pip install --quiet --disable-pip-version-check \
    "cyclonedx-python-lib[json-validation]==$cyclonedx"
fi

# For `make check`: unused dependencies, licenses and advisories.
if [[ $purpose == check ]]; then
  for tool in cargo-deny@0.20.2 cargo-machete@0.9.2; do
    name=${tool%@*}
    if [[ $(.tools/bin/"$name" --version 2> /dev/null) != *"${tool#*@}"* ]]; then
      echo "setup: installing $name ${tool#*@} into .tools, for make check (minutes)"
      cargo install "$name" --version "${tool#*@}" --locked --quiet --root .tools \
        --target-dir target/"$name"
      rm -r target/"$name"
    fi
  done
fi

# schemathesis tests the API against its OpenAPI document.
schemathesis=4.32.5
if [[ $(.tools/schemathesis/bin/schemathesis --version 2> /dev/null) != *" $schemathesis" ]]; then
  echo "setup: installing schemathesis $schemathesis into .tools (a minute)"
  rm -rf .tools/schemathesis
  python3 -m venv .tools/schemathesis
  .tools/schemathesis/bin/pip install --quiet --disable-pip-version-check \
    "schemathesis==$schemathesis"
fi

# moto, an independent AWS emulator, verifies the wire format.
moto=5.2.5
if [[ $(.tools/moto/bin/pip show moto 2> /dev/null) != *"Version: $moto"* ]]; then
  echo "setup: installing moto $moto into .tools (a minute)"
  rm -rf .tools/moto
  python3 -m venv .tools/moto
  .tools/moto/bin/pip install --quiet --disable-pip-version-check "moto[server]==$moto"
fi
