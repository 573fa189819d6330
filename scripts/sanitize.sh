#!/usr/bin/env bash
# AddressSanitizer over everything that touches shared memory or parses foreign bytes, then ThreadSanitizer: over session and
# agent, and over the library in a broker of many threads. `scripts/sanitize.sh address|thread` does one of them.
set -eu
cd "$(dirname "$0")/.."
which=${1:-both}
skip() { echo "sanitize: skipped: $*" >&2; exit 0; }
cargo +nightly --version >/dev/null 2>&1 || skip "no nightly toolchain (rustup toolchain install nightly)"
target=$(rustc +nightly -vV | sed -n 's/^host: //p')

if [ "$which" != thread ]; then
  RUSTFLAGS="-Zsanitizer=address" cargo +nightly test --target "$target" --target-dir target/asan \
    -p mqttshim-session -p mqttshim-schema
fi
[ "$which" != address ] || exit 0

# ThreadSanitizer needs the standard library instrumented too, which is built here from its source.
if ! rustup +nightly component list --installed 2>/dev/null | grep -q '^rust-src'; then
  rustup component add rust-src --toolchain nightly >/dev/null 2>&1 || skip "no rust-src (rustup component add rust-src --toolchain nightly)"
fi
tsan() {
  # Both ends of a session in one process on one mapping: ThreadSanitizer goes by addresses.
  RUSTFLAGS="-Zsanitizer=thread --cfg one_mapping -Cforce-frame-pointers=yes" \
    cargo +nightly "$1" -Zbuild-std --target "$target" --target-dir target/tsan "${@:2}"
}
export TSAN_OPTIONS="halt_on_error=0 exitcode=66"
tsan test -p mqttshim-session -p mqttshim-agent --lib --bins --tests

# The library in a broker of many threads, on a dpu-server of its own. gcc's runtime and rustc's instrumentation fit.
tsan build -p mqttshim --lib
cargo build --release -p dpu-server
folder=$(mktemp -d)
card=
cleanup() { [ -z "$card" ] || kill "$card" 2>/dev/null || true; rm -rf "$folder"; }
trap cleanup EXIT
gcc -std=gnu11 -g -O1 -Wall -Wextra -fsanitize=thread -rdynamic -pthread integration/programs/threads.c -o "$folder/threads" \
  || skip "no gcc with libtsan"
target/release/dpu-server run --session "$folder/session.sock" >"$folder/card.log" 2>&1 &
card=$!
for _ in $(seq 100); do [ -S "$folder/session.sock" ] && break; sleep 0.1; done
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
# Without randomised addresses: some kernels' are beyond what the runtime of older compilers maps.
if timeout 600 setarch -R env LD_PRELOAD="$PWD/target/tsan/$target/debug/libmqttshim.so" MQTTSHIM_SESSION="$folder/session.sock" \
  MQTTSHIM_LISTEN="$port" MQTTSHIM_LOG=info "$folder/threads" "$port" >"$folder/threads.log" 2>&1; then
  grep -q 'is served by the card' "$folder/threads.log" || { cat "$folder/threads.log" >&2; exit 1; }
  echo "sanitize: the library is clean in a broker of many threads"
else
  cat "$folder/threads.log" "$folder/card.log" >&2
  exit 1
fi
