#!/usr/bin/env bash
# mosquitto: C, level-triggered epoll, one thread.
#
# usage: mosquitto.sh PORT FOLDER [PREFIX…]     serves MQTT at 127.0.0.1:PORT, with its files in FOLDER, behind PREFIX
set -eu
port=$1 folder=$2; shift 2
printf 'listener %s %s\nallow_anonymous true\nmax_queued_messages 10000\nmax_packet_size 268435455\nlog_type error\n' "$port" "${TEST_HOST:-127.0.0.1}" >"$folder/mosquitto.conf"
# A command with arguments, where it is another mosquitto than the installed one.
read -ra mosquitto <<<"${MOSQUITTO:-mosquitto}"
exec "$@" "${mosquitto[@]}" -c "$folder/mosquitto.conf"
