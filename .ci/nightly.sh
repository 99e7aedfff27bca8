#!/usr/bin/env bash
# Prints the name of the nightly toolchain that fuzzing, Miri and the sanitizers use, and installs
# it, with the components given as arguments, if it is missing. If that fails, the script fails and
# names the missing toolchain or component.
set -euo pipefail
# The build date of this toolchain's compiler is the day before.
toolchain=nightly-2026-05-20
built=2026-05-19
if ! command -v rustup > /dev/null; then
  echo "nightly: no rustup; install $toolchain with these components: ${*:-none}" >&2
  exit 1
fi
# If the installed `nightly` is the same compiler, it is used instead of a second copy.
if rustc +nightly --version 2> /dev/null | grep --quiet " $built)"; then
  toolchain=nightly
elif ! rustc "+$toolchain" --version > /dev/null 2>&1; then
  rustup toolchain install "$toolchain" --profile minimal >&2 || {
    echo "nightly: $toolchain could not be installed" >&2
    exit 1
  }
fi
for component in "$@"; do
  rustup component add --toolchain "$toolchain" "$component" >&2 2> /dev/null || {
    echo "nightly: component $component of $toolchain could not be installed" >&2
    exit 1
  }
done
echo "$toolchain"
