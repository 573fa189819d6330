#!/usr/bin/env bash
# mosquitto, as installed: C, level-triggered epoll, one thread.
#
# usage: mosquitto.sh PORT FOLDER [PREFIX…]     serves MQTT at 127.0.0.1:PORT, with its files in FOLDER, behind PREFIX
set -eu
port=$1 folder=$2; shift 2
printf 'listener %s 127.0.0.1\nallow_anonymous true\nmax_queued_messages 10000\nlog_type error\n' "$port" >"$folder/mosquitto.conf"
exec "$@" "${MOSQUITTO:-mosquitto}" -c "$folder/mosquitto.conf"
