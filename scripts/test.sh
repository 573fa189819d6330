#!/usr/bin/env bash
# Every test of the workspace, against the optimised binaries `make build` made.
set -eu
cd "$(dirname "$0")/.."
if command -v cargo-nextest >/dev/null; then
  cargo nextest run --workspace --no-fail-fast
else
  cargo test --workspace --no-fail-fast
fi
cargo test --workspace --doc --quiet
