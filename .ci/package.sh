#!/usr/bin/env bash
# The Debian package: built, looked at by lintian, installed, used, upgraded and removed in a
# chroot; the units' ratings and the profile's syntax; what `cargo publish` would upload.
# As root on Debian. The chroot stays in target/chroot for the next run.
set -euo pipefail
cd "$(dirname "$0")/.."
. .ci/debian.sh
need lintian:lintian debootstrap:debootstrap systemd-analyze:systemd apparmor_parser:apparmor

apparmor_parser -QT packaging/apparmor/usr.bin.softnet
# The daemon without rights: at most 1.5 of 10; the helper: at most 3.
systemd-analyze security --offline=true --threshold=15 --no-pager \
  packaging/systemd/softnet.service >/dev/null
systemd-analyze security --offline=true --threshold=30 --no-pager \
  packaging/systemd/softnet-helper.service >/dev/null

package=$(packaging/build.sh)
lintian --fail-on error,warning "$package"
dpkg-deb --contents "$package" | grep '^drwxr-xr-x root/root .* \./$' >/dev/null

chroot="${CARGO_TARGET_DIR:-target}/chroot"
if [ ! -e "$chroot" ]; then
  clear_unfinished "$chroot.new"
  debootstrap --variant=minbase bookworm "$chroot.new" >"$chroot.log" || {
    tail "$chroot.log" >&2
    exit 1
  }
  mv "$chroot.new" "$chroot"
fi
inside() { chroot "$chroot" "$@"; }
inside dpkg --purge softnet >/dev/null 2>&1 || true
cp "$package" "$chroot/softnet.deb"
inside dpkg --install /softnet.deb >/dev/null
inside getent group softnet >/dev/null
inside getent passwd softnet >/dev/null
inside softnet --version
inside softnet check /etc/softnet/softnet.toml
[ -z "$(inside dpkg --verify softnet)" ]
# Stripped, and with all tracepoints, which are notes.
probes() { readelf --notes --wide "$1" | grep -c 'Provider: softnet'; }
built=$(probes "${CARGO_TARGET_DIR:-target}/release/softnet")
[ "$(probes "$chroot/usr/bin/softnet")" = "$built" ]
[ -z "$(readelf --symbols --wide "$chroot/usr/bin/softnet" | grep "table '.symtab'")" ]
# As `systemctl enable` does.
wanted="$chroot/etc/systemd/system/multi-user.target.wants"
mkdir -p "$wanted"
ln -sf /usr/lib/systemd/system/softnet.service "$wanted/softnet.service"
echo 'workers = 1' >>"$chroot/etc/softnet/softnet.toml"
inside softnet sim --config /usr/share/doc/softnet/examples/two-hosts.toml --port eth-b \
  --generate rate=20mbit,for=1s >/dev/null
# An upgrade leaves the changed configuration, a removal too, a purge nothing.
inside dpkg --install /softnet.deb >/dev/null
grep -q 'workers = 1' "$chroot/etc/softnet/softnet.toml"
inside dpkg --remove softnet >/dev/null
[ -e "$chroot/etc/softnet/softnet.toml" ]
[ ! -e "$chroot/usr/bin/softnet" ]
inside dpkg --purge softnet >/dev/null
[ ! -e "$chroot/etc/softnet" ]
[ ! -e "$chroot/var/lib/softnet" ]
[ ! -L "$wanted/softnet.service" ]

cargo publish --workspace --dry-run --locked --allow-dirty --no-verify --quiet
