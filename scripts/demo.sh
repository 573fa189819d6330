#!/usr/bin/env bash
# Runs a plain mosquitto and one on us side by side, measures both in one run, prints a table, stops what it started.
# Works as root and as an ordinary user. Settings: DURATION (seconds a step), SUBSCRIBERS (1,10,100,1000), and files to write:
# JSON, HTML.
set -eu
cd "$(dirname "$0")/.."
PATH="$PATH:/usr/sbin:/sbin:${CARGO_HOME:-${HOME:-}/.cargo}/bin"
subscribers=${SUBSCRIBERS:-1,10,100,1000}
duration=${DURATION:-5}

if ! command -v mosquitto >/dev/null; then
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    scripts/deps.sh
  fi
  command -v mosquitto >/dev/null || {
    echo "demo: mosquitto is not installed, and this user cannot install it." >&2
    echo "demo: ask root to run: apt-get install mosquitto" >&2
    exit 1
  }
fi
command -v cargo >/dev/null || { echo "demo: cargo is not installed; see https://rustup.rs" >&2; exit 1; }

echo "demo: building (the first time takes a few minutes)"
cargo build --release --workspace --quiet

release=${CARGO_TARGET_DIR:-target}/release
case $release in /*) ;; *) release=$PWD/$release ;; esac
folder=$(mktemp -d "${TMPDIR:-/tmp}/mqttshim-demo.XXXXXX")
chmod 755 "$folder"
pids=()
cleanup() {
  trap - EXIT INT TERM
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
  for pid in "${pids[@]}"; do wait "$pid" 2>/dev/null || true; done
  rm -rf "$folder"
}
trap cleanup EXIT
trap 'cleanup; exit 130' INT TERM

free_port() { # the first free port from $1 up
  local port=$1
  while (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do port=$((port + 1)); done
  echo "$port"
}
wait_for_port() { # $1 port, $2 whose
  for _ in $(seq 100); do
    (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null && return
    sleep 0.1
  done
  echo "demo: $2 does not answer on port $1; its log:" >&2; cat "$folder/$2.log" >&2; exit 1
}

plain=$(free_port 21883); card=$(free_port $((plain + 1))); metrics=$(free_port $((card + 1)))
for name in plain card; do
  port=$plain; [ "$name" = card ] && port=$card
  printf 'listener %s 127.0.0.1\nallow_anonymous true\nmax_queued_messages 10000\n' "$port" >"$folder/$name.conf"
  chmod 644 "$folder/$name.conf"
done

ulimit -n "$(ulimit -Hn)" 2>/dev/null || true
"$release/dpu-server" run --trust suback --session "$folder/session.sock" --metrics "127.0.0.1:$metrics" >"$folder/dpu-server.log" 2>&1 &
server=$!; pids+=("$server")
for _ in $(seq 100); do [ -S "$folder/session.sock" ] && break; sleep 0.1; done
[ -S "$folder/session.sock" ] || { echo "demo: dpu-server did not start; its log:" >&2; cat "$folder/dpu-server.log" >&2; exit 1; }
mosquitto -c "$folder/plain.conf" >"$folder/plain.log" 2>&1 &
plain_pid=$!; pids+=("$plain_pid")
# LD_PRELOAD by hand would do too; this says why where the library cannot be preloaded. The program keeps the process.
"$release/mqttshim" run --listen "$card" --session "$folder/session.sock" --fallback fail -- \
  mosquitto -c "$folder/card.conf" >"$folder/card.log" 2>&1 &
broker_pid=$!; pids+=("$broker_pid")
wait_for_port "$plain" plain; wait_for_port "$card" card

echo "demo: $(mosquitto -h | head -1 || true), plain and on us; 64-byte QoS 0 messages to $subscribers subscribers, $duration s a step"
"$release/mqttshim" bench fanout --target "mosquitto=127.0.0.1:$plain,pid=$plain_pid" \
  --target "on us=127.0.0.1:$card,pid=$broker_pid+$server" \
  --subscribers "$subscribers" --rate 20 --payload 64 --qos 0 --duration "$duration" \
  ${JSON:+--json "$JSON"} ${HTML:+--html "$HTML"}
echo
# The clients have left; what is shown is the whole once the broker has closed their connections.
for _ in $(seq 20); do
  "$release/mqttshim" stat --metrics "127.0.0.1:$metrics" --json | grep -q '"mqttshim_connections","value":0' && break
  sleep 0.1
done
"$release/mqttshim" stat --metrics "127.0.0.1:$metrics"
