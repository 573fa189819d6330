#!/usr/bin/env bash
# Foreign test suites without and with the library, outcome by outcome: CPython's, tokio's, stress-ng's stressors.
#   scripts/foreign.sh [cpython|tokio|stress-ng]…      all three without arguments
# Installs what is missing (as root), builds tokio's tests, and shows a table. A difference that scripts/foreign/exceptions.txt does not
# explain fails. What is told about each test is in target/foreign/out.
set -u
cd "$(dirname "$0")/.." || exit 1
PATH="$PATH:/usr/sbin:/sbin:${CARGO_HOME:-${HOME:-}/.cargo}/bin"
target=${CARGO_TARGET_DIR:-target}
release=$target/release
work=$target/foreign
tokio_version=1.54.1
wanted=" ${*:-cpython tokio stress-ng} "
for file in libmqttshim.so dpu-server; do
  [ -e "$release/$file" ] || { echo "foreign: $release/$file is missing; run: make build" >&2; exit 1; }
done
mkdir -p "$work"

# PACKAGE…: installs Debian packages, or says who can.
install() {
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "foreign: installing $*"
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null 2>&1 ||
      { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null; }
  else
    echo "foreign: missing; as root: apt-get install $*" >&2
  fi
}

# Prints a Python that has its own tests: Debian's, else the first one found.
python_with_tests() {
  local python
  for python in /usr/bin/python3 python3; do
    "$python" -c 'import test.test_socket, test.test_asyncio' 2>/dev/null && { command -v "$python"; return; }
  done
  return 1
}

# Builds tokio's integration tests from its published crate, and leaves cargo's messages about them in $work/tokio.json.
build_tokio() {
  local source=$work/tokio-$tokio_version packages
  packages="${CARGO_HOME:-${HOME:-}/.cargo}/registry/src"
  if [ ! -e "$source/.ready" ]; then
    # A package that depends on it makes cargo fetch it, through its ordinary cache and check.
    rm -rf "$source" "$work/fetch"; mkdir -p "$work/fetch/src"; touch "$work/fetch/src/lib.rs"
    printf '[package]\nname = "fetch"\nversion = "0.0.0"\nedition = "2021"\n[workspace]\n[dependencies]\ntokio = "=%s"\n' \
      "$tokio_version" >"$work/fetch/Cargo.toml"
    cargo fetch -q --manifest-path "$work/fetch/Cargo.toml" || return 1
    cp -r "$packages"/*/"tokio-$tokio_version" "$source" || return 1
    # The crates its tests use depend on tokio as well: on this one, or its traits would not be theirs. Its lock file names another.
    rm -f "$source/Cargo.lock"
    printf '\n[workspace]\n\n[patch.crates-io]\ntokio = { path = "." }\n' >>"$source/Cargo.toml"
    (cd "$source" && cargo metadata -q --format-version 1 >/dev/null) || return 1
    touch "$source/.ready"
  fi
  echo "foreign: building the tests of tokio $tokio_version (the first time takes minutes)"
  CARGO_TARGET_DIR=$work/tokio-target cargo test -q --manifest-path "$source/Cargo.toml" --no-run --features full,test-util \
    --test 'tcp_*' --test 'net_*' --test 'io_*' --test udp --test 'uds_*' --test 'unix_*' --test rt_common \
    --message-format json >"$work/tokio.json" 2>"$work/tokio-build.log" || { tail -n 20 "$work/tokio-build.log" >&2; return 1; }
}

arguments=()
skip() { echo "SKIPPED foreign suite: $*" >&2; [ "${CI:-}" != true ] || exit 1; }
case $wanted in *" cpython "*)
  python_with_tests >/dev/null || install "libpython$(/usr/bin/python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')-testsuite"
  if python=$(python_with_tests); then arguments+=(--cpython "$python"); else skip "no Python with its own tests"; fi ;;
esac
case $wanted in *" tokio "*)
  if build_tokio; then arguments+=(--tokio "$work/tokio.json"); else skip "tokio's tests do not build here"; fi ;;
esac
case $wanted in *" stress-ng "*)
  command -v stress-ng >/dev/null || install stress-ng
  if program=$(command -v stress-ng); then arguments+=(--stress-ng "$program"); else skip "no stress-ng"; fi ;;
esac
[ "${#arguments[@]}" -gt 0 ] || exit 1

compare=(python3 scripts/foreign/compare.py "$release" "$work/out" "${arguments[@]}")
rm -rf "$work/out"
if unshare --net true 2>/dev/null; then
  # A network of its own, where every port is free.
  exec unshare --net bash -c 'ip link set lo up && exec "$@"' - "${compare[@]}"
fi
echo "foreign: this user cannot make a network namespace; ports of the machine are used" >&2
exec "${compare[@]}"
