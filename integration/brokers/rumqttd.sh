#!/usr/bin/env bash
# rumqttd: Rust on tokio, edge-triggered epoll, several threads.
#
# usage: rumqttd.sh PORT FOLDER [PREFIX…]     serves MQTT 3.1.1 at 127.0.0.1:PORT, with its files in FOLDER, behind PREFIX
set -eu
port=$1 folder=$2; shift 2
here=$(cd "$(dirname "$0")" && pwd)
cat >"$folder/rumqttd.toml" <<END
id = 0
[router]
id = 0
max_connections = 10010
max_outgoing_packet_count = 200
max_segment_size = 104857600
max_segment_count = 10
[v4.1]
name = "v4-1"
listen = "${TEST_HOST:-127.0.0.1}:$port"
next_connection_delay_ms = 1
[v4.1.connections]
connection_timeout_ms = 60000
max_payload_size = 10000000
max_inflight_count = 100
dynamic_filters = true
END
exec "$@" "$here/../../.cache/brokers/rumqttd/bin/rumqttd" -c "$folder/rumqttd.toml"
