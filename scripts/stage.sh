# What demo.sh and bench.sh have in common: a folder of their own, processes of their own, and their end. To be sourced.
# shellcheck shell=bash

PATH="$PATH:/usr/sbin:/sbin:${CARGO_HOME:-${HOME:-}/.cargo}/bin"
release=${CARGO_TARGET_DIR:-target}/release
case $release in /*) ;; *) release=$PWD/$release ;; esac
folder=$(mktemp -d "${TMPDIR:-/tmp}/mqttshim.XXXXXX")
chmod 755 "$folder"
pids=()
cleanup() {
  trap - EXIT INT TERM
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
  for pid in "${pids[@]}"; do wait "$pid" 2>/dev/null || true; done
  rm -rf "$folder"
}
trap cleanup EXIT
trap 'cleanup; exit 130' INT TERM
ulimit -n "$(ulimit -Hn)" 2>/dev/null || true

# NAME COMMAND…: starts it with its output in NAME.log; its process id is $! afterwards.
start() {
  local name=$1; shift
  "$@" >"$folder/$name.log" 2>&1 &
  pids+=("$!")
}

# NAME PORT ADDRESS [LINE…]: a broker's configuration, readable for the user it becomes.
config() {
  local name=$1 port=$2 address=$3; shift 3
  printf 'listener %s %s\nallow_anonymous true\n' "$port" "$address" >"$folder/$name.conf"
  printf '%s\n' "$@" >>"$folder/$name.conf"
  chmod 644 "$folder/$name.conf"
}

# NAME WHAT COMMAND…: waits up to ten seconds for the command to succeed, else shows the log of NAME and gives up.
await() {
  local name=$1 what=$2; shift 2
  for _ in $(seq 100); do "$@" 2>/dev/null && return; sleep 0.1; done
  echo "$name $what; its log:" >&2; cat "$folder/$name.log" >&2; exit 1
}
answers() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }
await_port() { await "$1" "does not answer on port $2" answers "$2"; }
await_session() { await dpu-server "did not start" test -S "$folder/session.sock"; }
