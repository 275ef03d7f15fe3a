#!/usr/bin/env bash
# Installs what is missing: programs that tests and experiments use, toolchain components.
set -euo pipefail
cd "$(dirname "$0")/.."
toolchains() {
  rustup component add rustfmt clippy
  rustup toolchain list | grep -q '^nightly' || rustup toolchain install nightly --profile minimal
  rustup component add --toolchain nightly miri rust-src
}
packages=()
need() { command -v "$1" >/dev/null 2>&1 || packages+=("$2"); }
need ip iproute2
need tc iproute2
need ping iputils-ping
need iperf3 iperf3
need iperf iperf
need wrk wrk
need nginx nginx-light
need ovs-vswitchd openvswitch-switch
need setpriv util-linux
need pkg-config pkg-config
need cc gcc
need readelf binutils
need python3 python3
need dpdk-testpmd dpdk-dev
need valgrind valgrind
need qemu-system-x86_64 qemu-system-x86
need ethtool ethtool
need busybox busybox-static
need cpio cpio
need promtool prometheus
need tshark tshark
need passt passt
need bwrap bubblewrap
need fireqos fireqos
need fping fping
need go golang-go
python3 -c "import ensurepip" 2>/dev/null || packages+=(python3-venv)
pkg-config --exists libdpdk 2>/dev/null || packages+=(libdpdk-dev)
if [ ${#packages[@]} -gt 0 ] && { [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; }; then
  echo "missing: ${packages[*]}; install them, or run this as root on Debian" >&2
  exit 1
fi
# These download and unpack for as long as Debian's packages do.
toolchains &
toolchains=$!
if [ ${#packages[@]} -gt 0 ]; then
  apt-get update -qq
  export DEBIAN_FRONTEND=noninteractive
  apt-get install -y -qq --no-install-recommends "${packages[@]}" >/dev/null
fi
# What the tests' virtual machines boot.
bash tests/guest/image.sh target/guest
wait "$toolchains"
