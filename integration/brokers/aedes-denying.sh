#!/usr/bin/env bash
# aedes that lets in messages when it likes, and nobody hear what `denied` says on `t`.
#
# usage: aedes-denying.sh PORT FOLDER [PREFIX…]     serves MQTT at 127.0.0.1:PORT, behind PREFIX
export DENIED=denied SLOW_MS=4
exec "$(dirname "$0")/aedes.sh" "$@"
