#!/usr/bin/env bash
# amqtt: Python's asyncio, whose selector is level-triggered epoll.
#
# usage: amqtt.sh PORT FOLDER [PREFIX…]     serves MQTT at 127.0.0.1:PORT, with its files in FOLDER, behind PREFIX
set -eu
port=$1 folder=$2; shift 2
here=$(cd "$(dirname "$0")" && pwd)
cat >"$folder/amqtt.yaml" <<END
listeners:
  default: {type: tcp, bind: "${TEST_HOST:-127.0.0.1}:$port"}
plugins:
  amqtt.plugins.authentication.AnonymousAuthPlugin: {allow_anonymous: true}
END
# Python itself, because the `amqtt` command is a script that asks for it by way of a folder.
exec "$@" "$here/../../.cache/brokers/amqtt/bin/python" -m amqtt.scripts.broker_script -c "$folder/amqtt.yaml"
