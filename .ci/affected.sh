#!/usr/bin/env bash
# Prints a filter for nextest: the tests of the crates that differ from BASE (default: HEAD~1),
# committed or not, and of all crates that depend on them. Labs are excluded unless they changed
# themselves: they take most of the time, and `make lab` runs them.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

declare -A crates=()
labs=' - (package(tests) & binary(/^lab/)) - (package(routers) & binary(/^lab/))'
documents=''
while read -r file; do
  case $file in
    '' ) continue ;;
    Cargo.toml | Cargo.lock | .cargo/* | .config/* ) echo 'all()'; exit ;;
    tests/lab/* | tests/scenarios/lab* | tests/routers/* ) labs='' ;;
    *.md | config/examples/* ) documents=' | binary(tidy) | binary(examples) | test(/^(documents|reference)::/)' ;;
  esac
  folder=$(dirname "$file")
  until [[ -e $folder/Cargo.toml ]]; do folder=$(dirname "$folder"); done
  # The BPF programs are separate workspaces, which the enclosing crates build. Those of the tests
  # also use the loader's sources.
  [[ $folder == ebpf-fallback* ]] && folder=ebpf-fallback crates[xdp-test-programs]=1
  [[ $folder == tests/xdp* ]] && folder=tests/xdp
  [[ $folder == . || $folder == tests/oracle || $folder == */fuzz ]] && continue
  crates[$(sed -n '/^\[package\]/,/^\[/s/^name = "\(.*\)"$/\1/p' "$folder/Cargo.toml")]=1
done < <(git diff --name-only "${BASE:-HEAD~1}"; git ls-files --others --exclude-standard)

filter=''
for crate in "${!crates[@]}"; do
  filter+="${filter:+ | }rdeps(=$crate)"
done
echo "(${filter:-none()})$labs$documents"
