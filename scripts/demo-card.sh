#!/usr/bin/env bash
# A card of its own, as far as one machine has one: two network namespaces joined by a veth pair. At one end dpu-server with TCP/IP
# of its own on AF_XDP, and the brokers; at the other, clients on the kernel's sockets. Compares mosquitto alone on the kernel's
# stack with mosquitto on us, over the same pair, in one run. Needs root. Removes what it made; ends after 90 seconds at most.
# Settings: DURATION (seconds a step), SUBSCRIBERS (10,100,1000), and files to write: JSON, HTML.
set -eu
cd "$(dirname "$0")/.."
[ "$(id -u)" = 0 ] || {
  echo "demo-card: network namespaces, a veth pair and AF_XDP take root; 'make demo' shows the same on the kernel's stack without" >&2
  exit 1
}
. scripts/stage.sh
subscribers=${SUBSCRIBERS:-10,100,1000}
duration=${DURATION:-4}
limit=90

for program in mosquitto ip cargo; do
  command -v "$program" >/dev/null || { echo "demo-card: $program is not installed; 'make deps' installs what is missing" >&2; exit 1; }
done
echo "demo-card: building (the first time takes a few minutes)"
cargo build --release --workspace --quiet

card_net=mqcard$$ client_net=mqclient$$
nets=()
cleanup_all() {
  cleanup
  for net in "${nets[@]}"; do ip netns del "$net" 2>/dev/null || true; done
}
trap cleanup_all EXIT
trap 'cleanup_all; exit 130' INT TERM
for net in "$card_net" "$client_net"; do ip netns add "$net"; nets+=("$net"); ip -n "$net" link set lo up; done
ip link add card0 netns "$card_net" type veth peer name client0 netns "$client_net"
# 198.18.0.0/15 is set aside for benchmarks (RFC 2544). The card's address is nobody's but its own.
host=198.18.0.1 card=198.18.0.2 client=198.18.0.3
ip -n "$card_net" address add "$host/24" dev card0
ip -n "$client_net" address add "$client/24" dev client0
ip -n "$card_net" link set card0 up
ip -n "$client_net" link set client0 up

config plain 1883 "$host" 'set_tcp_nodelay true' 'max_queued_messages 10000'
config card 1884 0.0.0.0 'set_tcp_nodelay true' 'max_queued_messages 10000'
start dpu-server ip netns exec "$card_net" "$release/dpu-server" run --stack smoltcp --port xdp:card0 --address "$card/24" \
  --trust suback --older-sessions none --session "$folder/session.sock"
server=$!
await_session
start plain ip netns exec "$card_net" mosquitto -c "$folder/plain.conf"; plain_pid=$!
start card ip netns exec "$card_net" "$release/mqttshim" run --listen 1884 --session "$folder/session.sock" --fallback fail -- \
  mosquitto -c "$folder/card.conf"
broker_pid=$!
answers_at() { ip netns exec "$client_net" bash -c "exec 3<>/dev/tcp/$1/$2"; }
await plain "does not answer on $host" answers_at "$host" 1883
await card "does not answer on $card" answers_at "$card" 1884

grep -h "AF_XDP" "$folder/dpu-server.log" || true
echo "demo-card: $(mosquitto -h | head -1 || true), alone and on us, over one veth pair; 64-byte QoS 0 messages to $subscribers subscribers, $duration s a step"
timeout "$limit" ip netns exec "$client_net" "$release/mqttshim" bench fanout \
  --target "mosquitto=$host:1883,pid=$plain_pid" --target "on us=$card:1884,pid=$broker_pid+$server" \
  --subscribers "$subscribers" --rate 20 --payload 64 --qos 0 --duration "$duration" \
  ${JSON:+--json "$JSON"} ${HTML:+--html "$HTML"} || {
  code=$?
  [ "$code" != 124 ] || echo "demo-card: stopped after $limit seconds" >&2
  tail -n 5 "$folder/dpu-server.log" >&2
  exit "$code"
}
