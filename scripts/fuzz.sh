#!/usr/bin/env bash
# Fuzzes each target for the given number of seconds. Needs the nightly toolchain; installs cargo-fuzz if missing.
set -eu
cd "$(dirname "$0")/.."
seconds=${1:-60}
if ! cargo +nightly --version >/dev/null 2>&1; then
  echo "fuzz: skipped: no nightly toolchain (rustup toolchain install nightly)" >&2; exit 0
fi
command -v cargo-fuzz >/dev/null || cargo install --quiet --locked cargo-fuzz
for target in $(cargo +nightly fuzz list); do
  echo "== $target, $seconds s"
  # What was found before, and beginnings by hand, where there are some (fuzz/seeds).
  mkdir -p "fuzz/corpus/$target"
  seeds=()
  [ ! -d "fuzz/seeds/$target" ] || seeds=("fuzz/seeds/$target")
  cargo +nightly fuzz run "$target" "fuzz/corpus/$target" "${seeds[@]}" -- -max_total_time="$seconds" -print_final_stats=1 -len_control=0
done
