#!/usr/bin/env bash
# The benchmarks behind docs/performance.md, each a comparison of brokers that take turns in one run:
#   wire kernel   fan-out over raw frames, and over the kernel's sockets beside a bare send loop
#   qos1          both with QoS 1, acknowledged by every subscriber
#   mem           our own TCP/IP with frames in shared memory, beside frames that are ready, and brokers over raw frames; then at 20 messages a
#                 second and at 400, with acknowledgements at once, and with such that come for many messages: the difference is what they cost
#   xdp           the same on AF_XDP, over a veth pair
#   hold          100,000 idle connections of our own TCP/IP by itself; and what 5,000 cost with broker, session and card
#   loss          goodput of our own TCP/IP and of the kernel's over a wire that loses frames, both ways
#   trust         what the card distributes with trust "suback" and with "observed"
#   echo busy     QoS 1 echo through the broker: what is not accelerated; the same with one core taken by a busy loop
#   large connect the same with 60 kB payloads; one client after another
#   idle          CPU time of broker and card while nobody says anything
#   cores         the MQTT core by itself, and our own TCP/IP by itself
# scripts/bench.sh [STEP…], all if none is named. As root, once built, in a network namespace of its own. DURATION: seconds a step (10).
# OUT: folder for JSON and HTML (.cache/bench).
set -eu
cd "$(dirname "$0")/.."
all="wire kernel qos1 mem xdp hold loss trust echo busy large connect idle cores"
steps=${*:-$all}
for step in $steps; do
  case " $all " in *" $step "*) ;; *) echo "bench: no step $step; there are $all" >&2; exit 2 ;; esac
done
[ "$(id -u)" = 0 ] || { echo "bench: raw frames and a namespace need root" >&2; exit 1; }
if [ -z "${MQTTSHIM_BENCH_INSIDE:-}" ]; then
  MQTTSHIM_BENCH_INSIDE=1 exec unshare --net -- "$0" "$@"
fi
. scripts/stage.sh
ip link set lo up
duration=${DURATION:-10}
out=${OUT:-.cache/bench}
mkdir -p "$out"
[ -x "$release/dpu-server" ] || { echo "bench: $release/dpu-server is not there; 'make build' makes it" >&2; exit 1; }

config installed 11883 0.0.0.0
config fair 11884 0.0.0.0 'set_tcp_nodelay true' 'allow_duplicate_messages true'
config card 11885 0.0.0.0
start installed mosquitto -c "$folder/installed.conf"; installed=$!
start fair mosquitto -c "$folder/fair.conf"; fair_pid=$!
start dpu-server "$release/dpu-server" run --trust suback --older-sessions none --session "$folder/session.sock"; server=$!
await_session
start card "$release/mqttshim" run --listen 11885 --session "$folder/session.sock" --fallback fail -- \
  mosquitto -c "$folder/card.conf"
broker=$!
# QoS 1 is the card's too with that trust; with the other one it is not, so that this pair shows what goes through the broker.
config through 11887 0.0.0.0 'set_tcp_nodelay true' 'allow_duplicate_messages true'
start through-server "$release/dpu-server" run --trust observed --session "$folder/through.sock"; through_server=$!
await through-server "did not start" test -S "$folder/through.sock"
start through "$release/mqttshim" run --listen 11887 --session "$folder/through.sock" --fallback fail -- \
  mosquitto -c "$folder/through.conf"
through=$!
version=$(mosquitto -h | sed -n '1s/.* //p' || true)
targets=(--target "mosquitto $version=127.0.0.1:11883,pid=$installed" --target "$version fair=127.0.0.1:11884,pid=$fair_pid")
# A newer release beside it, where this machine's package mirror has one.
if newer=$(tools/fetch-mosquitto.sh .cache/mosquitto 2>"$folder/fetch.log"); then
  config newer 11886 0.0.0.0
  start newer $newer -c "$folder/newer.conf"; pid=$!
  targets+=(--target "mosquitto $($newer -h | sed -n '1s/.* //p' || true)=127.0.0.1:11886,pid=$pid")
  await_port newer 11886
else
  echo "bench: no newer mosquitto to compare with: $(tail -1 "$folder/fetch.log")" >&2
fi
targets+=(--target "on us=127.0.0.1:11885,pid=$broker+$server")
await_port installed 11883; await_port fair 11884; await_port card 11885; await_port through 11887

# What is not accelerated is held against the same broker, told not to wait for acknowledgements either.
fair=(--target "$version fair=127.0.0.1:11884,pid=$fair_pid" --target "on us=127.0.0.1:11887,pid=$through+$through_server")

run() { echo; "$release/mqttshim" bench "$@"; }

# PID: CPU time it used so far, in milliseconds.
cpu_ms() { awk -v hertz="$(getconf CLK_TCK)" '{ print ($14 + $15) * 1000 / hertz }' "/proc/$1/stat"; }
idle() {
  local before=() at
  for at in "$@"; do before+=("$(cpu_ms "$at")"); done
  sleep "$duration"
  echo; echo "Idle for $duration s, CPU time in ms:"
  set -- "broker alone" "$1" "broker on us" "$2" dpu-server "$3"
  for at in 0 1 2; do printf '  %-13s %s\n' "$1" "$(($(cpu_ms "$2") - before[at]))"; shift 2; done
}
# NAME PORT ADDRESS: a card of its own, with its own TCP/IP on that port, and a broker on it; pids and target go to `own`.
own_stack() {
  local name=$1 port=$2 address=$3 server
  config "$name" 1883 0.0.0.0
  start "$name-server" "$release/dpu-server" run --trust suback --older-sessions none --session "$folder/$name.sock" \
    --stack smoltcp --port "$port" --address "$address/24"; server=$!
  await "$name-server" "did not start" test -S "$folder/$name.sock"
  MQTTSHIM_LOG=info start "$name" "$release/mqttshim" run --listen 1883 --session "$folder/$name.sock" --fallback fail -- mosquitto -c "$folder/$name.conf"
  await "$name" "is not served by the card" grep -q "served by the card" "$folder/$name.log"
  own="our TCP/IP, $name=$address:1883,pid=$!+$server"
}
own_mem() {
  [ -z "${mem_target:-}" ] || return 0
  own_stack mem "mem:$folder/frames" 198.19.0.1
  mem_target="$own,port=mem:$folder/frames"
}

for step in $steps; do
  case $step in
    wire) run fanout --client wire --setup-veth "${targets[@]}" --subscribers 1000 --rate 20 --payload 64 --qos 0 \
            --duration "$duration" --json "$out/wire.json" --html "$out/wire.html" ;;
    kernel) run fanout --client kernel --bare-send "${targets[@]}" --subscribers 1,10,100,1000 --rate 20 --payload 64 --qos 0 \
            --duration "$duration" --json "$out/kernel.json" --html "$out/kernel.html" ;;
    qos1)
      run fanout --client wire --setup-veth "${targets[@]}" --subscribers 1000 --rate 10 --payload 64 --qos 1 \
        --duration "$duration" --json "$out/qos1-wire.json" --html "$out/qos1-wire.html"
      run fanout --client kernel "${targets[@]}" --subscribers 1,100,1000 --rate 10 --payload 64 --qos 1 \
        --duration "$duration" --json "$out/qos1.json" --html "$out/qos1.html" ;;
    mem)
      own_mem
      run fanout --client wire --setup-veth "${targets[@]}" --target "$mem_target" --ready-frames mem --subscribers 1000 --rate 20 \
        --payload 64 --qos 0 --duration "$duration" --json "$out/mem.json" --html "$out/mem.html"
      for payload in 64 256; do
        for load in "--rate 20" "--rate 20 --ack-delay 500" "--rate 400" "--rate 400 --ack-delay 100"; do
          # shellcheck disable=SC2086 # options and their values
          run fanout --client wire --target "$mem_target" --ready-frames mem --subscribers 100,1000 --payload "$payload" $load \
            --qos 0 --duration "$duration" --json "$out/mem-$payload${load//[ -]/}.json"
        done
      done ;;
    xdp)
      ip link add mqx0 type veth peer name mqx1
      for end in mqx0 mqx1; do ip link set dev "$end" addrgenmode none up; done
      own_stack xdp xdp:mqx0 198.19.8.1
      run fanout --client wire --setup-veth "${targets[@]}" --target "$own,port=packet:mqx1" --ready-frames xdp --subscribers 1000 \
        --rate 20 --payload 64 --qos 0 --duration "$duration" --json "$out/xdp.json" --html "$out/xdp.html" ;;
    hold)
      cargo build -q --release -p dpu-server --example hold
      start hold "$release/examples/hold" "$folder/hold" 198.19.4.1/22; hold=$!
      await hold "did not start" test -S "$folder/hold"
      run hold --tcp --connections 100000 --silence "$duration" --target "our TCP/IP alone=198.19.4.1:1883,pid=$hold,port=mem:$folder/hold"
      own_mem
      run hold --connections 5000 --silence "$duration" --target "$mem_target" \
        --target "mosquitto $version=127.0.0.1:11883,pid=$installed" ;;
    loss) echo; cargo bench -q -p dpu-server --bench goodput ;;
    trust) run fanout --client kernel --target "suback=127.0.0.1:11885,pid=$broker+$server" \
             --target "observed=127.0.0.1:11887,pid=$through+$through_server" --subscribers 100,1000 --rate 20 --payload 64 --qos 0 \
             --duration "$duration" --json "$out/trust.json" --html "$out/trust.html" ;;
    echo) run echo "${fair[@]}" --connections 1,4,8,50,1000 --qos 1 --duration "$duration" --json "$out/echo.json" ;;
    busy)
      timeout 600 taskset -c 0 sh -c 'while :; do :; done' & loop=$!; pids+=("$loop")
      echo; echo "With core 0 taken by a busy loop:"
      "$release/mqttshim" bench echo "${fair[@]}" --connections 1 --qos 1 --duration "$duration" --json "$out/busy.json"
      kill "$loop"; wait "$loop" 2>/dev/null || true ;;
    large) run echo "${fair[@]}" --connections 1,8 --qos 1 --payload 60000 --duration "$duration" --json "$out/large.json" ;;
    connect) run connect "${fair[@]}" --duration "$duration" --json "$out/connect.json" ;;
    idle) idle "$fair_pid" "$through" "$through_server" ;;
    cores) cargo bench -q -p dpu-server --bench mqtt; cargo bench -q -p dpu-server --bench stack ;;
  esac
done
