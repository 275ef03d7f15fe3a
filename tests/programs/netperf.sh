#!/usr/bin/env bash
# A system of Debian sid with netperf, which bookworm lacks, in the folder ROOT. What is there
# stays. As root on Debian.
# Usage: netperf.sh ROOT
set -euo pipefail
. "$(dirname "$0")/../../.ci/debian.sh"
root=$1
[ ! -e "$root" ] || exit 0
need debootstrap:debootstrap
clear_unfinished "$root.new"
# The package starts its server, on this system's network, unless that is refused.
mkdir -p "$root.new/usr/sbin"
printf '#!/bin/sh\nexit 101\n' >"$root.new/usr/sbin/policy-rc.d"
chmod 755 "$root.new/usr/sbin/policy-rc.d"
debootstrap --variant=minbase --components=main,non-free --include=netperf sid "$root.new" \
  >"$root.log" 2>&1 || { tail "$root.log" >&2; exit 1; }
echo '127.0.0.1 localhost' >"$root.new/etc/hosts"
chroot "$root.new" netperf -V
rm -rf "$root.new"/var/cache/apt/archives/*.deb "$root.new"/var/lib/apt/lists/*
mv "$root.new" "$root"
