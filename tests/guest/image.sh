#!/usr/bin/env bash
# Makes what a guest of the tests boots, from Debian's packages: the kernel, and a root folder with
# busybox and ethtool.
#
#   tests/guest/image.sh target/guest     writes target/guest/vmlinuz and target/guest/initrd
#
# Needs cpio, ethtool and apt-get. Nothing is installed; what was downloaded stays in the folder.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
cd "$1"
download() {
  # The package of that name only depends on the newest kernel.
  kernel=$(apt-cache depends linux-image-cloud-amd64 | grep -o 'linux-image-[0-9].*' | head -n 1)
  (cd packages && apt-get download -qq -o APT::Sandbox::User=root "$kernel" busybox-static)
}
if [ ! -e packages/done ]; then
  rm -rf packages
  mkdir packages
  # The lists may be too old.
  download 2>/dev/null || { apt-get update -qq && download; }
  for package in packages/*.deb; do dpkg-deb -x "$package" packages; done
  rm packages/*.deb
  touch packages/done
fi
rm -rf root
mkdir -p root/bin root/dev root/modules root/proc root/sys
eval "$(grep '^modules=' "$here/init")"
for module in $modules; do
  cp "$(find packages/lib/modules -name "$module.ko")" root/modules/
done
cp "$here/init" root/
cp packages/bin/busybox root/bin/
PATH=$PATH:/usr/sbin:/sbin
cp "$(command -v ethtool)" root/bin/
for library in $(ldd root/bin/ethtool | grep -o '/[^ ]*'); do
  mkdir -p "root$(dirname "$library")"
  cp -L "$library" "root$library"
done
(cd root && find . | cpio --quiet -o -H newc | gzip -1) >initrd.new
cp packages/boot/vmlinuz-* vmlinuz
mv initrd.new initrd
