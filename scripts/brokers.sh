#!/usr/bin/env bash
# Other unmodified programs on us: what works, who distributes, how fast; Markdown tables on standard output.
#
# usage: scripts/brokers.sh [NAME…]     mosquitto mosquitto-2.1.2 aedes amqtt ejabberd rumqttd · redis nginx
#
# Each broker runs alone and on us, is asked the same by the same clients (clients/ in integration/), and is measured with
# 100 subscribers, the two taking turns. What is missing is installed (Debian packages as root; the rest into .cache/brokers)
# or skipped loudly. Settings: DURATION (seconds a target, 4), RATE (messages a second, 20), OUT (folder for logs and JSON,
# .cache/brokers/out), INSTALL_ONLY=1.
set -u
cd "$(dirname "$0")/.." || exit 1
duration=${DURATION:-4}
rate=${RATE:-20}
out=${OUT:-.cache/brokers/out}
all=(mosquitto mosquitto-2.1.2 aedes amqtt ejabberd rumqttd redis nginx)
[ $# -gt 0 ] || set -- "${all[@]}"
mkdir -p "$out" .cache/brokers
. scripts/stage.sh
set +e
python=.cache/python/bin/python
# Nine each of paho, mqtt.js and the mosquitto clients, four of a crowd by hand.
features=31

skip() { echo "brokers: SKIPPED $1: $2" >&2; }

# PACKAGE…: installs what is missing, and starts no service.
debian() {
  local missing=() package policy=/usr/sbin/policy-rc.d made=
  for package in "$@"; do dpkg -s "$package" 2>/dev/null | grep -q '^Status: install ok' || missing+=("$package"); done
  [ "${#missing[@]}" = 0 ] && return 0
  [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || return 1
  if [ ! -e "$policy" ]; then printf '#!/bin/sh\nexit 101\n' >"$policy"; chmod 755 "$policy"; made=1; fi
  export DEBIAN_FRONTEND=noninteractive
  { apt-get update -qq && apt-get install -y -qq --no-install-recommends "${missing[@]}"; } >"$out/apt.log" 2>&1
  local result=$?
  [ -n "$made" ] && rm -f "$policy"
  return "$result"
}

install() { # NAME
  case $1 in
    mosquitto) debian mosquitto ;;
    mosquitto-2.1.2) tools/fetch-mosquitto.sh .cache/mosquitto >"$folder/newer" 2>"$out/newer.log" ;;
    aedes | amqtt) [ -e ".cache/brokers/$1/.ready" ] || scripts/deps.sh; [ -e ".cache/brokers/$1/.ready" ] ;;
    # Its own lock file no longer builds with a current compiler.
    rumqttd)
      [ -x .cache/brokers/rumqttd/bin/rumqttd ] ||
        cargo install rumqttd --version 0.20.0 --no-default-features --features use-rustls --quiet \
          --root .cache/brokers/rumqttd --target-dir .cache/brokers/rumqttd-target >"$out/rumqttd-build.log" 2>&1 ;;
    ejabberd) debian ejabberd ;;
    redis) debian redis-server redis-tools ;;
    nginx) debian nginx-light apache2-utils || debian nginx apache2-utils ;;
    *) echo "brokers: there is no $1; there are ${all[*]}" >&2; exit 2 ;;
  esac
}

version() { # NAME
  case $1 in
    mosquitto) mosquitto -h | sed -n '1s/.* //p' ;;
    mosquitto-2.1.2) $(cat "$folder/newer") -h 2>/dev/null | sed -n '1s/.* //p' ;;
    aedes) sed -n 's/^\s*"version": "\(.*\)".*/\1/p' .cache/brokers/aedes/node_modules/aedes/package.json | head -1 ;;
    amqtt) .cache/brokers/amqtt/bin/python -c 'import importlib.metadata as m; print(m.version("amqtt"))' ;;
    rumqttd) .cache/brokers/rumqttd/bin/rumqttd --version | sed 's/.* //' ;;
    ejabberd) dpkg-query -W -f '${Version}' ejabberd ;;
    redis) dpkg-query -W -f '${Version}' redis-server ;;
    nginx) nginx -v 2>&1 | sed 's/.*\///' ;;
  esac
}

runtime() { # NAME: language, how it waits
  case $1 in
    mosquitto*) echo 'C, one thread, level-triggered epoll' ;;
    aedes) echo "Node $(node --version), libuv, level-triggered epoll" ;;
    amqtt) echo "Python $(.cache/brokers/amqtt/bin/python -V | sed 's/.* //') asyncio, level-triggered epoll" ;;
    rumqttd) echo 'Rust, tokio, edge-triggered epoll, threads' ;;
    ejabberd) echo "Erlang/OTP $(erl -noshell -eval 'io:format("~s", [erlang:system_info(otp_release)]), halt().'), one-shot epoll, threads" ;;
  esac
}

free_port() { # a free port from $1 up
  local port=$1
  while answers "$port"; do port=$((port + 1)); done
  echo "$port"
}
# PID: it and everything below it, joined by +.
family() { local child; printf %s "$1"; for child in $(pgrep -P "$1"); do printf +; family "$child"; done; }

# NAME: starts the broker alone and on us, each in a folder of its own. Sets alone, ours, metrics and the processes.
both() {
  local name=$1 script=$1 mosquitto='' preload
  case $1 in mosquitto-2.1.2) script=mosquitto mosquitto=$(cat "$folder/newer") ;; esac
  alone=$(free_port 21883); ours=$(free_port $((alone + 10))); metrics=$(free_port $((ours + 10)))
  mkdir -m 777 "$folder/$name" "$folder/$name/alone" "$folder/$name/ours"
  start "$name-server" "$release/dpu-server" run --trust suback --older-sessions none --session "$folder/$name/session.sock" --metrics "127.0.0.1:$metrics"
  server=$!
  await "$name-server" 'did not start' test -S "$folder/$name/session.sock"
  MOSQUITTO=$mosquitto start "$name-alone" "integration/brokers/$script.sh" "$alone" "$folder/$name/alone"; alone_pid=$!
  preload=("$release/mqttshim" run --listen "$ours" --session "$folder/$name/session.sock" --fallback fail --)
  # What is started through a dynamic loader of its own looks static to `mqttshim run`.
  [ -n "$mosquitto" ] && preload=(env "LD_PRELOAD=$release/libmqttshim.so" "MQTTSHIM_LISTEN=$ours"
    "MQTTSHIM_SESSION=$folder/$name/session.sock" MQTTSHIM_FALLBACK=fail)
  MOSQUITTO=$mosquitto MQTTSHIM_LOG=info start "$name-ours" "integration/brokers/$script.sh" "$ours" "$folder/$name/ours" "${preload[@]}"; ours_pid=$!
  for _ in $(seq 600); do answers "$alone" && answers "$ours" && break; sleep 0.1; done
  answers "$alone" && answers "$ours" && grep -q 'is served by the card' "$folder/$name-ours.log"
}

over() { # ends what both started
  local pid
  for pid in "$ours_pid" "$alone_pid" "$server"; do kill "$pid" 2>/dev/null; done
  for pid in "$ours_pid" "$alone_pid"; do
    for _ in $(seq 50); do kill -0 "$pid" 2>/dev/null || break; sleep 0.1; done
    kill -9 "$pid" 2>/dev/null
  done
  cp "$folder/$1"-*.log "$out/" 2>/dev/null
}

clients() { # PORT LEVEL FILE: every client's report, one line of JSON a feature
  local at=0 version=mqttv311
  [ "$2" = 5 ] && version=mqttv5
  timeout 60 "$python" integration/clients/paho_client.py "$1" "$2" >"$3.1" 2>&1
  NODE_PATH=.cache/node/node_modules timeout 60 node integration/clients/mqttjs_client.js "$1" "$2" >"$3.2" 2>&1
  timeout 60 integration/clients/mosquitto_client.sh "$1" "$version" >"$3.3" 2>&1
  timeout 60 "$python" integration/clients/crowd_client.py "$1" >"$3.4" 2>&1
  for name in paho mqttjs mosquitto crowd; do
    at=$((at + 1))
    # What a client says of a feature is its own; that it works is not.
    sed -nE 's/^\{"feature": ?"([a-z0-9_]*)", ?"ok": ?(true|false).*/'"$name"' \1 \2/p' "$3.$at"
  done >"$3"
}

published() { # LABEL: the card's count
  "$release/mqttshim" stat --metrics "127.0.0.1:$metrics" --json |
    "$python" -c 'import json, sys
def walk(it):
    if isinstance(it, dict):
        if it.get("name") == "mqttshim_publish_total" and it.get("labels", {}).get("decision") == sys.argv[1]: yield it["value"]
        for value in it.values(): yield from walk(value)
    elif isinstance(it, list):
        for value in it: yield from walk(value)
print(int(sum(walk(json.load(sys.stdin)))))' "$1"
}

broker() { # NAME
  local name=$1 level=4 works ratio before after
  case $name in mosquitto* | ejabberd) level=5 ;; esac
  unset MQTT_USER MQTT_PASSWORD; local user=()
  if [ "$name" = ejabberd ]; then export MQTT_USER=guest MQTT_PASSWORD=guest; user=(--user guest:guest); fi
  if ! both "$name"; then
    skip "$name" "it did not come up; see $out"; over "$name"; return
  fi
  clients "$alone" "$level" "$out/$name-clients-alone" & local first=$!
  clients "$ours" "$level" "$out/$name-clients-ours" & local second=$!
  wait "$first" "$second"
  works=$(grep -c ' true$' "$out/$name-clients-ours")
  if ! cmp -s "$out/$name-clients-alone" "$out/$name-clients-ours"; then
    works="$works of $features; **differs from alone**"
  elif [ "$works" = "$features" ]; then works="all $features"
  else works="$works of $features, alone the same"; fi
  before=$(published card)
  if "$release/mqttshim" bench fanout --target "alone=127.0.0.1:$alone,pid=$(family "$alone_pid")" \
    --target "on us=127.0.0.1:$ours,pid=$(family "$ours_pid")+$server" --subscribers 100 --rate "$rate" --payload 64 --qos 0 \
    --duration "$duration" "${user[@]}" --json "$out/$name-fanout.json" >"$out/$name-fanout.txt" 2>&1; then
    after=$(published card)
    ratio=$("$python" - "$out/$name-fanout.json" "$((after - before))" "$rate" "$duration" <<'END'
import json, sys
report = json.load(open(sys.argv[1]))
rows = {row["target"]: row for row in report["rows"]}
alone, ours = (rows[name]["latency"]["p50_ns"] for name in ("alone", "on us"))
sent = rows["on us"]["latency"]["count"]
print(f"{alone / 1e6:.2f} ms → {ours / 1e6:.2f} ms: {alone / ours:.2f}× | {sys.argv[2]} of about {int((float(sys.argv[4]) + 1) * float(sys.argv[3]))}")
END
)
  else ratio="failed: $(tail -1 "$out/$name-fanout.txt") |"; fi
  over "$name"
  echo "| $name | $(version "$name") | $(runtime "$name") | $([ "$level" = 5 ] && echo '5' || echo '3.1.1'): $works | $ratio |"
}

rate_of() { awk '/per second/ {for (i = 1; i <= NF; i++) if ($i + 0 > 0) {print $i; exit}}'; }

redis() {
  local hashes=() rates=() port
  both redis || { skip redis 'it did not come up'; over redis; return; }
  for port in "$alone" "$ours"; do
    # The same keys, then everything read back: one hash.
    "$python" - "$port" >"$folder/redis-hash" <<'END'
import hashlib, random, socket, sys
stream = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
answers, noise = stream.makefile("rb"), random.Random(7)
def ask(*words):
    words = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    stream.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words))
    line = answers.readline()
    return line + (answers.read(int(line[1:]) + 2) if line[:1] == b"$" and line[1:2] != b"-" else b"")
digest = hashlib.sha256()
for number in range(200):
    ask("SET", f"key {number}", noise.randbytes(noise.randrange(200_000)))
for number in range(200):
    digest.update(ask("GET", f"key {number}"))
print(digest.hexdigest()[:16])
END
    hashes+=("$(cat "$folder/redis-hash")")
    rates+=("$(redis-benchmark -p "$port" -t get -c 50 -n "${REDIS_REQUESTS:-60000}" --csv 2>/dev/null | tail -1 | cut -d, -f2 | tr -d '"')")
  done
  over redis
  general redis "$(version redis)" "${hashes[@]}" "${rates[@]}"
}

nginx_() {
  local hashes=() rates=() port
  both nginx || { skip nginx 'it did not come up'; over nginx; return; }
  for port in "$alone" "$ours"; do
    hashes+=("$({ for file in small large; do curl -sf "http://127.0.0.1:$port/$file"; done; } | sha256sum | cut -c1-16)")
    rates+=("$(ab -q -k -c 50 -n "${NGINX_REQUESTS:-30000}" "http://127.0.0.1:$port/small" 2>/dev/null | sed -n 's/^Requests per second: *\([0-9.]*\).*/\1/p')")
  done
  over nginx
  general nginx "$(version nginx)" "${hashes[@]}" "${rates[@]}"
}

general() { # NAME VERSION HASH-ALONE HASH-OURS RATE-ALONE RATE-OURS
  local same='**differs**'
  [ -n "$3" ] && [ "$3" = "$4" ] && same="same, $3"
  echo "| $1 | $2 | $same | $5 → $6 requests/s: $(awk -v a="$5" -v b="$6" 'BEGIN {printf "%.2f×", b / a}') |"
}

for name in "$@"; do install "$name" || skip "$name" 'it could not be installed'; done
[ -z "${INSTALL_ONLY:-}" ] || exit 0
[ -x "$python" ] && [ -d .cache/node/node_modules/mqtt ] || scripts/deps.sh
[ -x "$release/dpu-server" ] || { echo 'brokers: run `make build` first' >&2; exit 1; }
echo "| broker | version | runtime, waiting | MQTT: features that work | 100 subscribers, p50 of the last | distributed by the card |"
echo '|---|---|---|---|---|---|'
for name in "$@"; do
  case $name in redis | nginx) ;; *) install "$name" && broker "$name" ;; esac
done
echo
echo '| server | version | what came back | throughput, 50 connections |'
echo '|---|---|---|---|'
for name in "$@"; do
  case $name in
    redis) install redis && redis ;;
    nginx) install nginx && nginx_ ;;
  esac
done
