#!/usr/bin/env bash
# Prints the name of the one nightly compiler that fuzzing, Miri and the sanitizers use, with the
# components that are named as arguments. It is installed where it is missing; where that fails,
# so does this, and names what could not be had.
set -euo pipefail
# The compiler of this toolchain was built the day before.
toolchain=nightly-2026-05-20
built=2026-05-19
if ! command -v rustup > /dev/null; then
  echo "nightly: there is no rustup; install $toolchain with: ${*:-no components}" >&2
  exit 1
fi
# A machine that calls the same compiler `nightly` needs no second copy.
if rustc +nightly --version 2> /dev/null | grep --quiet " $built)"; then
  toolchain=nightly
elif ! rustc "+$toolchain" --version > /dev/null 2>&1; then
  rustup toolchain install "$toolchain" --profile minimal >&2 || {
    echo "nightly: $toolchain can't be installed" >&2
    exit 1
  }
fi
for component in "$@"; do
  rustup component add --toolchain "$toolchain" "$component" >&2 2> /dev/null || {
    echo "nightly: $toolchain has no component $component" >&2
    exit 1
  }
done
echo "$toolchain"
