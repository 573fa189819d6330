#!/usr/bin/env bash
# The tests of everything that touches shared memory or parses foreign bytes, under AddressSanitizer.
set -eu
cd "$(dirname "$0")/.."
if ! cargo +nightly --version >/dev/null 2>&1; then
  echo "sanitize: skipped: no nightly toolchain (rustup toolchain install nightly)" >&2; exit 0
fi
RUSTFLAGS="-Zsanitizer=address" cargo +nightly test --target x86_64-unknown-linux-gnu --target-dir target/asan \
  -p mqttshim-session -p mqttshim-schema
