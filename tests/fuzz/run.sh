#!/usr/bin/env bash
# Runs fuzz targets one after the other: run.sh SECONDS [TARGET...]; without targets, all. SEED=7
# sets libFuzzer's seed. Corpora are kept in target/fuzz/corpus; failed targets are listed at the
# end.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
seconds=$1
shift
root=$(cd ../.. && pwd)
toolchain=$("$root"/.ci/nightly.sh)
version=0.13.2
if [[ $(PATH=$root/.tools/bin:$PATH cargo-fuzz --version 2> /dev/null) != "cargo-fuzz $version" ]]
then
  echo "fuzz: installing cargo-fuzz $version into .tools (a minute)"
  cargo install cargo-fuzz --version "$version" --locked --quiet --root "$root/.tools" \
    --target-dir "$root/target/cargo-fuzz"
  rm -r "$root/target/cargo-fuzz"
fi
export PATH=$root/.tools/bin:$PATH
fuzz() { cargo "+$toolchain" fuzz "$@"; }
# Without the repository's target CPU: the sanitizer's runtime does not support AVX2, and AVX2 would
# not make fuzzing faster.
export RUSTFLAGS=
export CARGO_TARGET_DIR=$root/target/fuzz
if (($# == 0)); then
  mapfile -t all < <(fuzz list --fuzz-dir .)
  set -- "${all[@]}"
fi
fuzz build --fuzz-dir .
# Prints the files that are a target's initial corpus, if it has any.
seeds() {
  case $1 in
    configuration) echo "$root"/config/examples/{aws,azure,bgp,lab}.toml ;;
    kubernetes) echo "$root"/config/examples/*.yaml "$root"/config/azure/*.yaml ;;
  esac
}
failed=()
for target in "$@"; do
  corpus=$root/target/fuzz/corpus/$target
  mkdir -p "$corpus"
  for file in $(seeds "$target"); do
    cp "$file" "$corpus/"
  done
  log=$root/target/fuzz/$target.log
  if fuzz run --fuzz-dir . "$target" "$corpus" -- -max_total_time="$seconds" -timeout=10 \
    -seed="${SEED:-1}" -rss_limit_mb=2048 -max_len=4096 > "$log" 2>&1; then
    grep '^Done' "$log" | sed "s/^/fuzz: $target: /"
  else
    tail -40 "$log"
    failed+=("$target")
  fi
done
if ((${#failed[@]})); then
  echo "fuzz: FAILED: ${failed[*]} (logs in target/fuzz)" >&2
  exit 1
fi
echo "fuzz: $# targets ran for $seconds s each without failure"
