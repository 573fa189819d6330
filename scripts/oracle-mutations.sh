#!/usr/bin/env bash
# Whether the oracle notices: for each rule of the core a card without that rule, in which it has to find a difference.
#
# usage: scripts/oracle-mutations.sh [RULE…]     all of them: see `rules` below. SEEDS=n tries for each (200)
#
# The cards are built with the cargo feature `mutations`, into target/mutations; no other build has it.
set -eu
cd "$(dirname "$0")/.."
# rule, and the trust under which it counts
rules=(byte-equal-copies:observed void-windows:observed barrier:suback alias:suback no-local:suback
  subscription-identifier:suback identifier-mapping:suback receive-maximum:suback keep-alive:suback)
seeds=${SEEDS:-200} missed=
mutated=target/mutations/release/dpu-server
cargo build --release -p dpu-server --features mutations --target-dir target/mutations
cargo nextest run -p mqttshim-integration --test differential --no-run
for entry in "${rules[@]}"; do
  rule=${entry%:*} trust=${entry#*:}
  [ $# = 0 ] || [[ " $* " == *" $rule "* ]] || continue
  log=target/oracle/mutation-$rule.log
  mkdir -p target/oracle
  if DPU_SERVER=$PWD/$mutated DPU_SERVER_MUTATION=$rule MQTTSHIM_TRUST=$trust MQTTSHIM_SEED=1 \
    MQTTSHIM_SEEDS=$seeds RUST_BACKTRACE=0 cargo nextest run -p mqttshim-integration --test differential --no-capture oracle >"$log" 2>&1; then
    echo "$rule: NOT NOTICED in $seeds seeds (trust $trust)"; missed="$missed $rule"
  elif grep -q '^the runs differ' "$log"; then
    echo "$rule: noticed (trust $trust), $(grep -o 'MQTTSHIM_SEED=[0-9]*' "$log" | tail -1)"
  else
    echo "$rule: the run failed for another reason, see $log"; missed="$missed $rule"
  fi
done
[ -z "$missed" ] || { echo "oracle: not noticed:$missed" >&2; exit 1; }
