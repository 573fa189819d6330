#!/usr/bin/env bash
# aedes: JavaScript in Node, whose libuv watches with level-triggered epoll.
#
# usage: aedes.sh PORT FOLDER [PREFIX…]     serves MQTT at 127.0.0.1:PORT, behind PREFIX
set -eu
port=$1; shift 2
here=$(cd "$(dirname "$0")" && pwd)
export AEDES="$here/../../.cache/brokers/aedes/node_modules/aedes/aedes.js"
exec "$@" node "$here/aedes.mjs" "$port"
