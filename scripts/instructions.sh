#!/usr/bin/env bash
# Instructions that our own TCP/IP takes for one delivery, one acknowledgement, one connect, and one wait that finds nothing, counted
# by valgrind, and compared with those kept in dpu-server/benches/stack/instructions.txt. Fails if one has grown by more than
# a twentieth. `--keep` writes down what was counted. Times depend on the machine and its load; these depend on the code and the compiler.
set -eu
cd "$(dirname "$0")/.."
kept=dpu-server/benches/stack/instructions.txt
command -v valgrind >/dev/null || { echo "instructions: valgrind is missing (Debian package valgrind)" >&2; exit 1; }
program=$(cargo bench -p dpu-server --bench stack --no-run 2>&1 | sed -n 's/.*(\(.*\/stack-[0-9a-f]*\))$/\1/p')
[ -x "$program" ] || { echo "instructions: the benchmark does not build; try: cargo bench -p dpu-server --bench stack --no-run" >&2; exit 1; }

# CASE CONNECTIONS ROUNDS: instructions of a whole run.
total() {
  timeout 120 valgrind --tool=callgrind --callgrind-out-file=/dev/null "$program" count "$@" 2>&1 |
    sed -n 's/.*Collected : //p'
}
# CASE CONNECTIONS FEW MANY: instructions of one round and connection, from the difference of two runs.
each() { echo $((($(total "$1" "$2" "$4") - $(total "$1" "$2" "$3")) / ($2 * ($4 - $3)))); }

counted=$(mktemp)
trap 'rm -f "$counted"' EXIT
small=$(each delivery-64 500 1 6)
{
  echo "delivery-64 $small"
  echo "delivery-256 $(each delivery-256 500 1 6)"
  echo "batch-64 $(each batch-64 500 1 6)"
  echo "acknowledgement $(($(each fan-out-64 500 2 22) - small))"
  echo "connect $(each connect 500 1 4)"
  echo "idle-wait $(each idle 1 100 1100)"
} > "$counted"
if [ "${1:-}" = --keep ]; then cp "$counted" "$kept"; fi
awk '
  NR == FNR { kept[$1] = $2; next }
  {
    grown = kept[$1] ? $2 / kept[$1] - 1 : 0
    printf "%-16s %7d  kept %7d  %+6.1f %%\n", $1, $2, kept[$1], grown * 100
    bad = bad || grown > 0.05
  }
  END { exit bad }
' "$kept" "$counted" || { echo "instructions: more than were kept; if that is meant, run with --keep" >&2; exit 1; }
