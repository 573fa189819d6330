#!/usr/bin/env bash
# mosquitto_pub and mosquitto_sub as clients of the broker at PORT: one line of JSON a feature.
#
# usage: mosquitto_client.sh PORT mqttv31|mqttv311|mqttv5
#
# mosquitto_sub does not say when it is subscribed. So each receiver also subscribes to a topic with a retained message:
# once that has come, its SUBSCRIBE is done.
set -u
port=$1
version=$2
prefix=mosq-$version
folder=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null; rm -rf "$folder"' EXIT
patience_s=20
# Where a broker wants credentials.
user=()
[ -n "${MQTT_USER:-}" ] && user=(-u "$MQTT_USER" -P "${MQTT_PASSWORD:-}")

pub() { timeout "$patience_s" mosquitto_pub -h "${TEST_HOST:-127.0.0.1}" -p "$port" -V "$version" "${user[@]}" "$@"; }
sub() { exec timeout "$patience_s" mosquitto_sub -h "${TEST_HOST:-127.0.0.1}" -p "$port" -V "$version" "${user[@]}" "$@"; }

# Waits until a file holds a text. Bounded by the receiver, which ends after its patience.
holds() { # FILE TEXT
  for _ in $(seq 1 2000); do
    grep -qa -- "$2" "$1" 2>/dev/null && return 0
    sleep 0.01
  done
  return 1
}

# Starts a receiver of COUNT messages into FILE, and returns when it is subscribed.
receive() { # FILE COUNT ARGUMENTS…
  local file=$1 count=$2
  shift 2
  (sub -t "$prefix/ready" -C $((count + 1)) "$@" >"$file" 2>&1) &
  receiver=$!
  holds "$file" READY
}

report() { # FEATURE RESULT DETAIL
  local ok=false
  [ "$2" = 0 ] && ok=true
  local detail=${3//\\/}
  detail=${detail//\"/}
  detail=${detail//$'\n'/ }
  printf '{"feature":"%s","ok":%s,"detail":"%s"}\n' "$1" "$ok" "${detail:0:400}"
}

expect() { # FEATURE FILE EXPECTED: what came after READY
  local got
  got=$(grep -av '^READY' "$2")
  if [ "$got" = "$3" ]; then report "$1" 0 "${4:-as expected}"; else report "$1" 1 "got $got"; fi
}

publishes() { # QOS
  local file=$folder/qos$1 list count=50
  # mosquitto_sub 2.0.11 with MQTT 5 now and then gives up ("protocol error") when more QoS 2 messages are under way than its
  # Receive Maximum of 20, whatever the broker.
  [ "$1" = 2 ] && count=15
  list=$(seq -f 'message %g' 1 "$count")
  receive "$file" "$count" -q "$1" -t "$prefix/qos$1"
  pub -q "$1" -t "$prefix/qos$1" -l <<<"$list"
  wait "$receiver"
  expect "qos$1" "$file" "$list" "$count in order"
}

retained() {
  local file=$folder/retained
  pub -q 1 -r -t "$prefix/retained" -m kept
  receive "$file" 1 -q 1 -F '%r %p' -t "$prefix/retained"
  wait "$receiver"
  local got
  got=$(sort "$file")
  pub -q 1 -r -n -t "$prefix/retained"
  if [ "$got" = $'1 READY\n1 kept' ]; then report retained 0 kept; else report retained 1 "got $got"; fi
}

will() {
  local file=$folder/will
  receive "$file" 1 -q 1 -t "$prefix/will"
  local watcher=$receiver
  # `exec` in sub makes this the pid of timeout, which passes no SIGKILL on: the client is started without it.
  mosquitto_sub -h "${TEST_HOST:-127.0.0.1}" -p "$port" -V "$version" "${user[@]}" -t "$prefix/ready" \
    --will-topic "$prefix/will" --will-payload gone --will-qos 1 >"$folder/dying" 2>&1 &
  local dying=$!
  holds "$folder/dying" READY
  # Disowned, or the shell reports its death on standard error.
  disown "$dying"
  kill -9 "$dying"
  wait "$watcher"
  expect will "$file" gone published
}

persistent() {
  local first=$folder/first second=$folder/second list
  local keep=(-q 1 -c -i "$prefix-keep" -t "$prefix/persistent")
  [ "$version" = mqttv5 ] && keep+=(-x 3600)
  receive "$first" 0 "${keep[@]}"
  wait "$receiver"
  list=$(seq -f 'queued %g' 1 20)
  pub -q 1 -t "$prefix/persistent" -l <<<"$list"
  # READY was subscribed to in the first life and is not sent again by a broker that only resumes; the SUBSCRIBE of the
  # second life brings it again.
  receive "$second" 20 "${keep[@]}"
  wait "$receiver"
  expect persistent "$second" "$list" '20 queued'
}

large() {
  local qos result=0 detail='5 MB there and back, same hash'
  head -c 5000000 /dev/urandom >"$folder/sent"
  for qos in 0 1; do
    receive "$folder/large$qos" 1 -N -q 1 -t "$prefix/large"
    pub -q "$qos" -t "$prefix/large" -f "$folder/sent"
    wait "$receiver"
    tail -c +6 "$folder/large$qos" >"$folder/got"
    cmp "$folder/sent" "$folder/got" >"$folder/difference" 2>&1 || { result=1; detail=$(cat "$folder/difference"); }
  done
  report large "$result" "$detail"
}

wildcards() {
  local name filter level all='' result=0
  for name in 'plus w/+/end' 'hash w/#' 'all #'; do
    filter=${name#* }
    name=${name%% *}
    local file=$folder/wild-$name count=3
    [ "$name" = plus ] && count=2
    [ "$name" = hash ] && count=4
    [ "$name" = all ] && count=5
    # `#` brings READY as well; it is subscribed to once more only where the filter leaves it out.
    receive "$file" "$count" -t "$prefix/wild/$filter"
    for level in w/a/end w/a/b/end w end; do pub -t "$prefix/wild/$level" -m "$level"; done
    pub -t "$prefix/wild/w/x/end" -m end-of-list
    wait "$receiver" || result=1
    all+="$name:$(grep -av '^READY' "$file" | paste -sd,) "
  done
  [ "$all" = 'plus:w/a/end,end-of-list hash:w/a/end,w/a/b/end,w,end-of-list all:w/a/end,w/a/b/end,w,end,end-of-list ' ] || result=1
  report wildcards "$result" "$all"
}

properties() {
  if [ "$version" != mqttv5 ]; then report properties 0 'none in this version'; return; fi
  local file=$folder/properties
  receive "$file" 2 -q 1 -F '%C|%R|%D|%P|%p' -t "$prefix/properties"
  local qos
  for qos in 0 1; do
    pub -q "$qos" -t "$prefix/properties" -m hello -D publish content-type text/plain -D publish response-topic answer/here \
      -D publish correlation-data abc -D publish user-property a 1 -D publish user-property a 2
  done
  wait "$receiver"
  local got want='text/plain|answer/here|abc|a:1 a:2|hello'
  got=$(grep -a hello "$file")
  if [ "$got" = "$want"$'\n'"$want" ]; then report properties 0 'all there'; else report properties 1 "got $got"; fi
}

pub -q 1 -r -t "$prefix/ready" -m READY
publishes 0
publishes 1
publishes 2
retained
will
persistent
large
wildcards
properties
