#!/usr/bin/env bash
# The benchmarks behind docs/performance.md, each a comparison of brokers that take turns in one run:
#   fan-out over raw frames, fan-out over the kernel's sockets beside a bare send loop, QoS 1 echo through the broker.
# As root, in a network namespace of its own. DURATION: seconds a step (10). OUT: folder for JSON and HTML (.cache/bench).
set -eu
cd "$(dirname "$0")/.."
[ "$(id -u)" = 0 ] || { echo "bench: raw frames and a namespace need root" >&2; exit 1; }
if [ -z "${MQTTSHIM_BENCH_INSIDE:-}" ]; then
  MQTTSHIM_BENCH_INSIDE=1 exec unshare --net -- "$0" "$@"
fi
PATH="$PATH:/usr/sbin:/sbin"
ip link set lo up
duration=${DURATION:-10}
out=${OUT:-.cache/bench}
steps=${*:-wire kernel echo cores}
release=$(realpath -m "${CARGO_TARGET_DIR:-target}")/release
mkdir -p "$out"

folder=$(mktemp -d "${TMPDIR:-/tmp}/mqttshim-bench.XXXXXX")
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

# name port settings…: a configuration everybody may read.
config() {
  local name=$1 port=$2; shift 2
  printf 'listener %s 0.0.0.0\nallow_anonymous true\n' "$port" >"$folder/$name.conf"
  printf '%s\n' "$@" >>"$folder/$name.conf"
  chmod 644 "$folder/$name.conf"
}
wait_for_port() {
  for _ in $(seq 100); do (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null && return; sleep 0.1; done
  echo "bench: nobody answers on port $1" >&2; cat "$folder"/*.log >&2; exit 1
}
ulimit -n "$(ulimit -Hn)"

config installed 11883; config fair 11884 'set_tcp_nodelay true' 'allow_duplicate_messages true'; config card 11885
mosquitto -c "$folder/installed.conf" >"$folder/installed.log" 2>&1 & installed=$!; pids+=("$installed")
mosquitto -c "$folder/fair.conf" >"$folder/fair.log" 2>&1 & fair=$!; pids+=("$fair")
"$release/dpu-server" run --trust suback --session "$folder/session.sock" >"$folder/dpu-server.log" 2>&1 & server=$!; pids+=("$server")
for _ in $(seq 100); do [ -S "$folder/session.sock" ] && break; sleep 0.1; done
MQTTSHIM_LISTEN=11885 MQTTSHIM_SESSION="$folder/session.sock" MQTTSHIM_FALLBACK=fail LD_PRELOAD="$release/libmqttshim.so" \
  mosquitto -c "$folder/card.conf" >"$folder/card.log" 2>&1 & broker=$!; pids+=("$broker")
version=$(mosquitto -h | sed -n '1s/.* //p' || true)
targets=(--target "mosquitto $version=127.0.0.1:11883,pid=$installed" --target "$version fair=127.0.0.1:11884,pid=$fair")
# A newer release beside it, where this machine's package mirror has one.
if newer=$(tools/fetch-mosquitto.sh .cache/mosquitto 2>"$folder/fetch.log"); then
  config newer 11886
  $newer -c "$folder/newer.conf" >"$folder/newer.log" 2>&1 & pid=$!; pids+=("$pid")
  targets+=(--target "mosquitto $($newer -h | sed -n '1s/.* //p' || true)=127.0.0.1:11886,pid=$pid")
  wait_for_port 11886
else
  echo "bench: no newer mosquitto to compare with: $(tail -1 "$folder/fetch.log")" >&2
fi
targets+=(--target "on us=127.0.0.1:11885,pid=$broker+$server")
for port in 11883 11884 11885; do wait_for_port "$port"; done

run() { echo; "$release/mqttshim" bench "$@"; }
for step in $steps; do
  case $step in
    wire) run fanout --client wire --setup-veth "${targets[@]}" --subscribers 1000 --rate 20 --payload 64 --qos 0 \
            --duration "$duration" --json "$out/wire.json" --html "$out/wire.html" ;;
    kernel) run fanout --client kernel --bare-send "${targets[@]}" --subscribers 1,10,100,1000 --rate 20 --payload 64 --qos 0 \
            --duration "$duration" --json "$out/kernel.json" --html "$out/kernel.html" ;;
    echo) run echo "${targets[@]}" --connections 1,50 --qos 1 --duration "$duration" --json "$out/echo.json" ;;
    cores) cargo bench -q -p dpu-server --bench mqtt ;;
    *) echo "bench: no step $step; there are wire kernel echo cores" >&2; exit 2 ;;
  esac
done
