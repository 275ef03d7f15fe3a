#!/usr/bin/env bash
# Runs cases of the kernel's tc test suite (tdc) on Softnet. The suite's dummy device is a link of
# Softnet; what the host's stack sends through an interface of that name reaches the link by a TAP
# device and a bridge.
# Usage: unshare -n softnet.sh SOFTNET CASES.json…      SOFTNET is the program.
set -euo pipefail
here=$(dirname "$(realpath "$0")") softnet=$(realpath "$1")
shift
work=$(mktemp -d)
export SOFTNET_SOCKET=$work/socket TMPDIR=$work
cat >"$work/run.toml" <<'TOML'
[[port]]
name = "feed"
driver = "tap"
[[bridge]]
name = "br0"
ports = ["feed"]
TOML
# ip as the cases call it: links are Softnet's, addresses the host's, and both are set up.
cat >"$work/ip" <<SCRIPT
#!/bin/sh
case "\$1 \$2 \$*" in
"addr add "*) exec ip "\$@" ;;
"link add "*tdc-dummy0*)
  "$softnet" exec -- ip "\$@" &&
    "$softnet" exec -- ip link set dev tdc-dummy0 master br0 up ;;
"link del "*tdc-dummy0) ip addr flush dev tdc-dummy0; exec "$softnet" exec -- ip "\$@" ;;
"link set "*)
  "$softnet" exec -- ip "\$@" && ip "\$@" || exit
  for host in 10.10.10.1 10.10.10.2 10.10.11.11; do
    ip neigh replace \$host lladdr 02:00:00:00:00:99 dev tdc-dummy0 nud permanent
  done ;;
*) exec "$softnet" exec -- ip "\$@" ;;
esac
SCRIPT
chmod +x "$work/ip"
echo 1 >/proc/sys/net/ipv6/conf/default/disable_ipv6
"$softnet" run --socket "$SOFTNET_SOCKET" "$work/run.toml" >"$work/log" 2>&1 &
daemon=$!
trap 'kill $daemon; wait $daemon || true; rm -rf "$work"' EXIT
for _ in $(seq 100); do
  [ -e "$SOFTNET_SOCKET" ] && ip link show feed >/dev/null 2>&1 && break
  sleep 0.1
done
ip link set feed down
ip link set feed name tdc-dummy0
"$here/run_cases.py" --tc "$softnet exec -- tc" --ip "$work/ip" "$@"
