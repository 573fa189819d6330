#!/usr/bin/env bash
# ejabberd's mod_mqtt: Erlang's BEAM, whose poll threads watch with one-shot epoll.
#
# usage: ejabberd.sh PORT FOLDER [PREFIX…]     serves MQTT at 127.0.0.1:PORT, with its files in FOLDER, behind PREFIX
#
# Without Erlang's distribution: its listener and its connection to epmd would be two the card cannot see.
set -eu
port=$1 folder=$2; shift 2
cat >"$folder/ejabberd.yml" <<END
hosts: [localhost]
loglevel: warning
listen:
  - {port: $port, ip: "${TEST_HOST:-127.0.0.1}", module: mod_mqtt, backlog: 1000}
auth_method: [anonymous]
allow_multiple_connections: true
anonymous_protocol: both
modules:
  mod_mqtt: {access_publish: {"#": [{allow: all}]}, access_subscribe: {"#": [{allow: all}]}, max_queue: 10000}
END
libraries=$(dirname "$(ls -d /usr/lib/*/ejabberd-*/ | head -1)")
export ERL_LIBS=$libraries EJABBERD_CONFIG_PATH=$folder/ejabberd.yml EJABBERD_LOG_PATH=$folder/ejabberd.log
exec "$@" erl -noinput -mnesia dir "\"$folder/mnesia\"" -s ejabberd
