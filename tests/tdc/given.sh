#!/usr/bin/env bash
# Runs cases of the kernel's tc test suite (tdc) that send nothing on Softnet, with the links that
# they add. Left out are those of kinds that Softnet refuses: qdiscs, and the actions mpls and nat.
# Usage: given.sh SOFTNET DIR [TC [IP]]      SOFTNET is the program; DIR has a folder for each part
#                                            of the suite; TC and IP are programs (Debian's).
set -euo pipefail
here=$(dirname "$(realpath "$0")") softnet=$(realpath "$1") dir=$2
tc=${3:-tc} ip=${4:-ip}
work=$(mktemp -d)
export SOFTNET_SOCKET=$work/socket
echo "" >"$work/run.toml"
"$softnet" run --socket "$SOFTNET_SOCKET" "$work/run.toml" >"$work/log" 2>&1 &
daemon=$!
trap 'kill $daemon; wait $daemon || true; rm -rf "$work"' EXIT
for _ in $(seq 100); do
  "$softnet" --socket "$SOFTNET_SOCKET" ip link show >/dev/null 2>&1 && break
  sleep 0.1
done
absent='sfb|hhf|plug|gred|choke|skbprio'
# A tc of before Linux 7.0 does not know the word.
if [[ $("$tc" qdisc add dev lo root cake_mq help 2>&1 || true) == Unknown* ]]; then
  absent="$absent|cake_mq"
  echo "cake_mq: this tc does not know it"
fi
mapfile -t cases < <(find "$dir" -name '*.json' | grep -vE "/($absent)\.json$" | sort)
python3 "$here/run_cases.py" --tc "$softnet exec -- $tc" --ip "$softnet exec -- $ip" \
  --without 7a70,2c81 "${cases[@]}"
