#!/usr/bin/env bash
# The differential oracle: SEEDS random scenarios on each BROKER alone and on us, for each TRUST. See docs/testing.md.
#
# usage: SEEDS=200 BROKER="aedes ejabberd" TRUST=suback scripts/oracle.sh     FIRST=n begins at another seed than 1
set -eu
cd "$(dirname "$0")/.."
seeds=${SEEDS:-500} first=${FIRST:-1} failed=
for broker in ${BROKER:-mosquitto}; do
  for trust in ${TRUST:-suback observed}; do
    MQTTSHIM_BROKER=$broker MQTTSHIM_TRUST=$trust MQTTSHIM_SEED=$first MQTTSHIM_SEEDS=$seeds RUST_BACKTRACE=${RUST_BACKTRACE:-0} \
      MQTTSHIM_TEST_STRICT=1 cargo nextest run -p mqttshim-integration --test differential --no-capture oracle ||
      failed="$failed $broker/$trust"
  done
done
[ -z "$failed" ] || { echo "oracle: FAILED:$failed" >&2; exit 1; }
