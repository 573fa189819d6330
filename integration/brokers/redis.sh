#!/usr/bin/env bash
# redis-server: C, level-triggered epoll, one thread.
#
# usage: redis.sh PORT FOLDER [PREFIX…]     serves at 127.0.0.1:PORT, with its files in FOLDER, behind PREFIX
set -eu
port=$1 folder=$2; shift 2
exec "$@" redis-server --port "$port" --bind "${TEST_HOST:-127.0.0.1}" --dir "$folder" --save '' --appendonly no --loglevel warning
