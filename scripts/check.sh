#!/usr/bin/env bash
# Formatting, lints, documentation, dependency audit, generated code. Each step is explained in docs/testing.md.
set -eu
cd "$(dirname "$0")/.."

step() { printf '\n== %s\n' "$*"; }

step "formatting"
cargo fmt --all --check
step "lints"
cargo clippy --workspace --all-targets -- -D warnings
step "documentation"
RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --document-private-items --quiet
step "dependencies: licences, sources, duplicates"
if ! command -v cargo-deny >/dev/null; then cargo install --quiet --locked cargo-deny; fi
cargo deny --log-level error check licenses bans sources
step "generated code is current"
if command -v capnp >/dev/null; then cargo run -q -p mqttshim-schema --example generate -- --check
else echo "skipped: no capnp compiler here (Debian package capnproto)" >&2; fi
step "the tree"
scripts/tidy.sh
printf '\ncheck: all passed\n'
