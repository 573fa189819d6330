#!/usr/bin/env bash
# Every test of the workspace, against the optimised binaries `make build` made.
set -eu
cd "$(dirname "$0")/.."
# Output of tests that pass is not shown; what they skipped is.
skipped=${CARGO_TARGET_DIR:-target}/skipped-tests.log
rm -f "$skipped"
trap 'if [ -s "$skipped" ]; then sort -u "$skipped"; fi' EXIT
# Examples in the documentation, which nextest does not run.
cargo test --workspace --doc --quiet
# What we changed in what others wrote, and their own.
cargo test --manifest-path vendor/smoltcp/Cargo.toml --target-dir "${CARGO_TARGET_DIR:-target}/vendored" --lib \
  --features socket-tcp-reno --locked --quiet
if command -v cargo-nextest >/dev/null; then
  failed=
  cargo nextest run --workspace --no-fail-fast || failed=1
  # A share of it again, on TCP/IP of our own.
  scripts/own-stack.sh share || failed=1
  [ -z "$failed" ]
else
  cargo test --workspace --no-fail-fast
fi
