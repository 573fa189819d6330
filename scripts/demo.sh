#!/usr/bin/env bash
# Runs a plain mosquitto and one on us side by side, measures both in one run, prints a table, stops what it started.
# Works as root and as an ordinary user. Settings: DURATION (seconds a step), SUBSCRIBERS (1,10,100,1000), and files to write:
# JSON, HTML.
set -eu
cd "$(dirname "$0")/.."
. scripts/stage.sh
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

free_port() { # the first free port from $1 up
  local port=$1
  while answers "$port"; do port=$((port + 1)); done
  echo "$port"
}
plain=$(free_port 21883); card=$(free_port $((plain + 1))); metrics=$(free_port $((card + 1)))
config plain "$plain" 127.0.0.1 'max_queued_messages 10000'
config card "$card" 127.0.0.1 'max_queued_messages 10000'

start dpu-server "$release/dpu-server" run --trust suback --session "$folder/session.sock" --metrics "127.0.0.1:$metrics"
server=$!
await_session
start plain mosquitto -c "$folder/plain.conf"; plain_pid=$!
# LD_PRELOAD by hand would do too; this says why where the library cannot be preloaded. The program keeps the process.
start card "$release/mqttshim" run --listen "$card" --session "$folder/session.sock" --fallback fail -- \
  mosquitto -c "$folder/card.conf"
broker_pid=$!
await_port plain "$plain"; await_port card "$card"

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
