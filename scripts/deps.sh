#!/usr/bin/env bash
# Installs what the tests need and is missing: Debian packages (as root), Python and Node clients into .cache.
# Says what it could not install; the tests that need it then skip themselves and say so.
set -u
cd "$(dirname "$0")/.." || exit 1

declare -A package_of=(
  [mosquitto]=mosquitto [mosquitto_pub]=mosquitto-clients [gdb]=gdb [strace]=strace [ip]=iproute2 [ping]=iputils-ping
  [capnp]=capnproto [faketime]=faketime [cc]=gcc [python3]=python3 [curl]=curl [node]=nodejs [npm]=npm
  [redis-server]=redis-server [nginx]=nginx-light
  [tshark]=tshark [musl-gcc]=musl-tools [setcap]=libcap2-bin [systemd-analyze]=systemd
)
missing=()
for program in "${!package_of[@]}"; do
  PATH="$PATH:/usr/sbin:/sbin" command -v "$program" >/dev/null || missing+=("${package_of[$program]}")
done
if [ "${#missing[@]}" -gt 0 ]; then
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "deps: installing ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    # Starting the packaged broker is not wanted: the tests start their own.
    policy=/usr/sbin/policy-rc.d
    made_policy=
    if [ ! -e "$policy" ]; then printf '#!/bin/sh\nexit 101\n' >"$policy"; chmod 755 "$policy"; made_policy=1; fi
    apt-get update -qq && apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
    result=$?
    [ -n "$made_policy" ] && rm -f "$policy"
    [ "$result" = 0 ] || echo "deps: apt-get could not install ${missing[*]}; tests that need them will be skipped" >&2
  else
    echo "deps: missing: ${missing[*]}; as root: apt-get install ${missing[*]}" >&2
  fi
fi

mkdir -p .cache
if command -v python3 >/dev/null && [ ! -e .cache/python/.ready ]; then
  python3 -m venv .cache/python >/dev/null 2>&1 || python3 -m venv --without-pip .cache/python >/dev/null 2>&1
  pip=".cache/python/bin/python -m pip"
  $pip --version >/dev/null 2>&1 || pip="python3 -m pip --python .cache/python/bin/python"
  if $pip install -q --disable-pip-version-check 'paho-mqtt==2.1.0'; then touch .cache/python/.ready
  else echo "deps: could not install paho-mqtt; its tests will be skipped" >&2; fi
fi
if command -v npm >/dev/null && [ ! -e .cache/node/.ready ]; then
  mkdir -p .cache/node
  echo '{"private":true}' >.cache/node/package.json
  if npm install --prefix .cache/node --silent --no-audit --no-fund 'mqtt@5.14.1'; then touch .cache/node/.ready
  else echo "deps: could not install mqtt.js; its tests will be skipped" >&2; fi
fi
# Brokers beside mosquitto. `make brokers` installs more.
if command -v npm >/dev/null && [ ! -e .cache/brokers/aedes/.ready ]; then
  mkdir -p .cache/brokers/aedes
  echo '{"private":true}' >.cache/brokers/aedes/package.json
  if npm install --prefix .cache/brokers/aedes --silent --no-audit --no-fund 'aedes@1.2.0'; then touch .cache/brokers/aedes/.ready
  else echo "deps: could not install aedes; its tests will be skipped" >&2; fi
fi
if command -v python3 >/dev/null && [ ! -e .cache/brokers/amqtt/.ready ]; then
  python3 -m venv .cache/brokers/amqtt >/dev/null 2>&1 || python3 -m venv --without-pip .cache/brokers/amqtt >/dev/null 2>&1
  pip=".cache/brokers/amqtt/bin/python -m pip"
  $pip --version >/dev/null 2>&1 || pip="python3 -m pip --python .cache/brokers/amqtt/bin/python"
  if $pip install -q --disable-pip-version-check 'amqtt==0.12.1'; then touch .cache/brokers/amqtt/.ready
  else echo "deps: could not install amqtt; its tests will be skipped" >&2; fi
fi
exit 0
