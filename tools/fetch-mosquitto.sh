#!/bin/sh
# Unpacks mosquitto of another Debian release, with the libraries it needs, into a folder; installs nothing.
#
#   tools/fetch-mosquitto.sh DIR [RELEASE]     RELEASE: forky (default), sid, trixie, ...
#
# Prints one line on stdout: the command prefix that runs it, for example
#   $(tools/fetch-mosquitto.sh target/mosquitto-forky) -c my.conf
# Everything else goes to stderr. A folder that is already complete is used as it is.
#
# How: a private apt state (own lists, own empty dpkg status) resolves the packages of RELEASE from the mirror
# this machine already uses, checks signatures with this machine's Debian keyring, and downloads; each package is
# then unpacked without running its scripts. The broker is started through the release's own dynamic loader, so it
# gets that release's libc and libraries whatever this machine runs. Needs apt-get and dpkg-deb, no root.
set -eu

usage() { echo "usage: $0 DIR [RELEASE]" >&2; exit 2; }
[ $# -ge 1 ] && [ $# -le 2 ] || usage
release=${2:-forky}
mkdir -p "$1"
dir=$(cd "$1" && pwd)
root=$dir/root
architecture=$(dpkg --print-architecture)

loader() {
    for candidate in "$root"/usr/lib64/ld-linux-*.so.* "$root"/lib64/ld-linux-*.so.* \
        "$root"/usr/lib/ld-linux-*.so.* "$root"/usr/lib/*-linux-gnu/ld-linux-*.so.*; do
        if [ -f "$candidate" ]; then echo "$candidate"; return; fi
    done
    echo "$0: no dynamic loader below $root" >&2
    return 1
}

# The loader under the name of the program it runs, by which this program is known.
named() {
    if [ ! -f "$dir/mosquitto" ]; then
        cp "$(loader)" "$dir/mosquitto.$$"
        mv "$dir/mosquitto.$$" "$dir/mosquitto"
    fi
    echo "$dir/mosquitto"
}

prefix() {
    found=$(named)
    libraries=$(find "$root" -type d -path '*/lib/*-linux-gnu' | paste -sd:)
    echo "$found --library-path $libraries --argv0 mosquitto $root/usr/sbin/mosquitto"
}

if [ -f "$dir/complete" ] && [ "$(cat "$dir/complete")" = "$release" ]; then
    prefix
    exit 0
fi

mirror=${MIRROR:-$(apt-get indextargets --format '$(ORIGIN) $(REPO_URI)' 'Created-By: Packages' |
    sed -n 's/^Debian \([^ ]*\/debian\/\{0,1\}\)$/\1/p' | head -n 1)}
if [ -z "$mirror" ]; then
    echo "$0: this machine's apt has no Debian mirror (run apt-get update, or set MIRROR=URL)" >&2
    exit 1
fi

rm -rf "$root" "$dir/complete" "$dir/mosquitto"
mkdir -p "$root" "$dir/apt/lists/partial" "$dir/apt/cache/archives/partial" "$dir/apt/etc/apt.conf.d" \
    "$dir/apt/etc/preferences.d"
: > "$dir/apt/status"
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
echo "deb [signed-by=$keyring] $mirror $release main" > "$dir/apt/sources.list"

private_apt() {
    apt-get -q -o Dir::State="$dir/apt" -o Dir::State::status="$dir/apt/status" -o Dir::Cache="$dir/apt/cache" \
        -o Dir::Etc::sourcelist="$dir/apt/sources.list" -o Dir::Etc::sourceparts=/dev/null \
        -o Dir::Etc::preferences=/dev/null -o Dir::Etc::preferencesparts=/dev/null -o APT::Architecture="$architecture" \
        -o APT::Architectures="$architecture" -o APT::Sandbox::User= -o Debug::NoLocking=1 \
        -o APT::Install-Recommends=0 -o Acquire::Languages=none "$@" >&2
}
private_apt update
private_apt -y --download-only install mosquitto
for package in "$dir"/apt/cache/archives/*.deb; do
    dpkg-deb -x "$package" "$root"
done
# Some packages leave their SONAME links to ldconfig. `-n` makes the links and touches no cache.
find "$root" -type d -path '*/lib/*-linux-gnu' -exec "$(command -v ldconfig || echo /sbin/ldconfig)" -n {} +
rm -rf "$dir/apt"
echo "$release" > "$dir/complete"
prefix
