#!/usr/bin/env bash
# The units with systemd as the first process: the Debian package, installed in a guest of QEMU with
# Debian sid's systemd, and tests/guest/systemd/check in it. As root on Debian, after setup.sh. What
# debootstrap made stays in target/systemd for the next run.
set -euo pipefail
cd "$(dirname "$0")/.."
. .ci/debian.sh
need debootstrap:debootstrap mke2fs:e2fsprogs
package=$(packaging/build.sh)
files=tests/guest/systemd
guest=target/guest
place="${CARGO_TARGET_DIR:-target}/systemd"
root="$place/root"
mkdir -p "$place"
if [ ! -e "$root" ]; then
  clear_unfinished "$root.new"
  # systemd applies lists of system calls only where libseccomp is there.
  debootstrap --variant=minbase --include=systemd-sysv,libseccomp2,passwd sid "$root.new" \
    >"$place/debootstrap.log" || { tail "$place/debootstrap.log" >&2; exit 1; }
  rm -rf "$root.new"/var/cache/apt/archives/*.deb "$root.new"/var/lib/apt/lists/*
  mv "$root.new" "$root"
fi
inside() { chroot "$root" "$@"; }
inside dpkg --purge softnet >/dev/null 2>&1 || true
cp "$package" "$root/softnet.deb"
inside dpkg --install /softnet.deb >/dev/null
rm "$root/softnet.deb"
cat >"$root/etc/softnet/softnet.toml" <<'CONFIG'
[engine]
workers = 1
buffers = 4096
state = "/var/lib/softnet/state"

[[port]]
name = "web"
driver = "tap"
address = ["10.9.0.1/24"]
qdisc = { kind = "fq_codel" }
CONFIG
install -m 755 "$files/check" "$root/check"
install -m 644 "$files/check.service" "$root/etc/systemd/system/check.service"
# As `systemctl enable` does. The unit with the checks is for this guest only.
wanted="$root/etc/systemd/system/multi-user.target.wants"
mkdir -p "$wanted"
ln -sf /usr/lib/systemd/system/softnet.service "$wanted/softnet.service"
ln -sf /etc/systemd/system/check.service "$wanted/check.service"
# With one of its own it does not ask for what a first boot asks for.
[ -s "$root/etc/machine-id" ] || echo 0123456789abcdef0123456789abcdef >"$root/etc/machine-id"
rm -f "$place/disk"
mke2fs -q -F -t ext4 -d "$root" "$place/disk" 2G

eval "$(grep '^modules=' "$files/init")"
rm -rf "$place/initrd"
mkdir -p "$place/initrd"/{bin,dev,modules,root}
for module in $modules; do
  cp "$(find "$guest/packages/lib/modules" -name "$module.ko")" "$place/initrd/modules/"
done
install -m 755 "$files/init" "$place/initrd/init"
cp "$guest/packages/bin/busybox" "$place/initrd/bin/"
(cd "$place/initrd" && find . | cpio --quiet -o -H newc | gzip -1) >"$place/initrd.gz"

rm -f "$place/console" "$place/results"
# The test of the timer fails where the machine has more to do.
timeout --kill-after=10 1200 qemu-system-x86_64 -nodefaults -no-user-config -display none \
  -no-reboot -machine q35 -accel tcg,tb-size=128 -cpu max -smp 2 -m 512M \
  -kernel "$guest/vmlinuz" -initrd "$place/initrd.gz" \
  -append "console=ttyS0 no_timer_check panic=-1 systemd.firstboot=off" \
  -drive "if=none,id=disk,format=raw,cache=unsafe,file=$place/disk" \
  -device virtio-blk-pci,drive=disk \
  -serial "file:$place/console" -serial "file:$place/results" || true
touch "$place/console" "$place/results"
if [ "$(tr -d '\r' <"$place/results" | grep '^== ')" != "== 0" ]; then
  tail -n 40 "$place/console" >&2
  tr -d '\r' <"$place/results" | tail -n 200 >&2
  echo "the checks in the guest failed, or did not end" >&2
  exit 1
fi
rm "$place/disk"
