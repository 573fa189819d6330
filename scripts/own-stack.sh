#!/usr/bin/env bash
# What has to hold on TCP/IP of our own as on the kernel's: clients, fan-out, sessions, hardship, every parity case, SEEDS scenarios of the
# oracle for each trust, and the long runs against Wireshark, stalled clients, floods and lost frames. As root; see docs/testing.md.
#
# usage: SEEDS=200 scripts/own-stack.sh           all of it
#        scripts/own-stack.sh share               what `make test` has time for
set -eu
cd "$(dirname "$0")/.."
if [ "$(id -u)" != 0 ]; then
  echo "SKIPPED: own-stack: network namespaces and TAP devices need root"
  [ "${CI:-}" != true ] || exit 1
  exit 0
fi
run() { cargo nextest run -p mqttshim-integration --no-fail-fast "$@"; }
failed=
if [ "${1:-}" = share ]; then
  MQTTSHIM_TEST_STACK=smoltcp run -E 'binary(clients) | binary(differential) & test(by_observation)
    | binary(parity) & test(/option|reset|connect|port/)'
  exit
fi
MQTTSHIM_TEST_STACK=smoltcp run \
  -E 'binary(clients) | binary(fanout) | binary(hardship) | binary(sessions) | binary(prefork) | binary(manners) | binary(parity)' || failed=1
MQTTSHIM_TEST_STACK=smoltcp BROKER=mosquitto SEEDS=${SEEDS:-200} scripts/oracle.sh || failed=1
MQTTSHIM_TEST_LONG=1 run -E 'binary(own_stack) | binary(interop) | binary(pressure) | binary(loss)' || failed=1
cargo nextest run -p dpu-server --no-fail-fast --test contract || failed=1
[ -z "$failed" ] || { echo "own-stack: FAILED" >&2; exit 1; }
