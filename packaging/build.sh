#!/usr/bin/env bash
# Makes a Debian package from this checkout: target/softnet_VERSION_ARCH.deb.
# Needs Rust, binutils and dpkg-deb. Usage: packaging/build.sh
set -euo pipefail
cd "$(dirname "$0")/.."
export SOFTNET_REVISION="${SOFTNET_REVISION:-$(git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)}"
SOURCE_DATE_EPOCH="${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}"
export SOURCE_DATE_EPOCH
cargo build --release --locked -p softnet-cli
target="${CARGO_TARGET_DIR:-target}"
softnet="$target/release/softnet"
version=$("$softnet" --version | sed 's/softnet \([^ ]*\).*/\1/')
arch=$(dpkg --print-architecture)
# There is no address yet. This name leads nowhere for good (RFC 2606).
maintainer='The Softnet authors <softnet@softnet.invalid>'
# The newest version of the C library whose symbols the program names.
glibc=$(readelf --version-info --wide "$softnet" | grep -o 'GLIBC_2\.[0-9]*' | sort -uV | tail -1)
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
put() { install -D -m "$1" "$2" "$root/$3"; }

put 755 "$softnet" usr/bin/softnet
strip --strip-unneeded --remove-section=.comment --remove-section=.note "$root/usr/bin/softnet"
put 644 packaging/softnet.toml etc/softnet/softnet.toml
for unit in softnet.service softnet-helper.service softnet-helper.socket; do
  put 644 "packaging/systemd/$unit" "usr/lib/systemd/system/$unit"
done
put 644 packaging/systemd/softnet-helper-passt.conf usr/share/doc/softnet/examples/softnet-helper-passt.conf
put 644 packaging/apparmor/usr.bin.softnet usr/share/doc/softnet/examples/apparmor-usr.bin.softnet
put 644 packaging/grafana/dashboard.json usr/share/doc/softnet/examples/grafana-dashboard.json
put 755 packaging/extcap/softnet-extcap usr/share/doc/softnet/examples/softnet-extcap
for script in packaging/bpftrace/*.bt; do
  put 755 "$script" "usr/share/doc/softnet/examples/$(basename "$script")"
done
for example in examples/*.toml; do
  put 644 "$example" "usr/share/doc/softnet/examples/$(basename "$example")"
done
put 644 packaging/debian/copyright usr/share/doc/softnet/copyright
"$softnet" documents "$root/documents"
for page in "$root"/documents/man/*; do
  put 644 "$page" "usr/share/man/man${page##*.}/$(basename "$page")"
done
put 644 "$root/documents/softnet.bash" usr/share/bash-completion/completions/softnet
put 644 "$root/documents/_softnet" usr/share/zsh/vendor-completions/_softnet
put 644 "$root/documents/softnet.fish" usr/share/fish/vendor_completions.d/softnet.fish
rm -r "$root/documents"
find "$root/usr/share/man" -type f -exec gzip -9n {} +
{
  echo "softnet ($version) unstable; urgency=medium"
  echo
  echo "  * See CHANGELOG.md of the source."
  echo
  echo " -- $maintainer  $(date -R -u -d "@$SOURCE_DATE_EPOCH")"
} | gzip -9n >"$root/usr/share/doc/softnet/changelog.gz"

mkdir "$root/DEBIAN"
cat >"$root/DEBIAN/control" <<CONTROL
Package: softnet
Version: $version
Architecture: $arch
Maintainer: $maintainer
Section: net
Priority: optional
Depends: libc6 (>= ${glibc#GLIBC_}), libgcc-s1, passwd
Suggests: iproute2, passt
Installed-Size: $(du -sk --exclude=DEBIAN "$root" | cut -f1)
Description: software switch and traffic control in user space
 Softnet passes packets from any number of threads and ports through one
 traffic-control policy: exact rates over all cores, fair queues, limits per
 tenant. It is driven by the unmodified tc, ip and bridge, and needs no kernel
 module, hugepages or dedicated core.
CONTROL
echo /etc/softnet/softnet.toml >"$root/DEBIAN/conffiles"
for script in postinst prerm postrm; do
  put 755 "packaging/debian/$script" "DEBIAN/$script"
done
# The sums of conffiles are dpkg's to keep.
(cd "$root" && find usr -type f | LC_ALL=C sort | xargs md5sum) >"$root/DEBIAN/md5sums"
# Whatever the umask is, and the folder itself, too, which is `/` in the package.
chmod -R u=rwX,go=rX "$root"
package="$target/softnet_${version}_$arch.deb"
dpkg-deb --root-owner-group --build "$root" "$package" >/dev/null
echo "$package"
