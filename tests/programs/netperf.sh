#!/usr/bin/env bash
# A system of Debian sid with netperf, which bookworm lacks, in the folder ROOT. What is there
# stays. As root on Debian.
# Usage: netperf.sh ROOT
set -euo pipefail
# Where the programs of administrators are, of this system and of the one that is made.
export PATH="$PATH:/usr/sbin:/sbin"
root=$1
[ ! -e "$root" ] || exit 0
if ! command -v debootstrap >/dev/null; then
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends debootstrap >/dev/null
fi
# It may have been stopped while the kernel's file systems were mounted there.
for mount in proc sys; do umount "$root.new/$mount" 2>/dev/null || true; done
rm -rf --one-file-system "$root.new"
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
