#!/bin/sh
# Measures again and writes docs/results: NAME.json, NAME.md, the pictures and README.md. What goals
# are about takes an hour, on a machine that does nothing else; `sweeps` measures all cells and
# variants in fewer rounds, for two hours at most, and writes docs/results/sweeps. Each round is a
# process of its own, in random order. What was measured stays in target/results until all pages are
# made: the same command at the same revision goes on where it stopped.
#
# The newest peers are measured where SOFTNET_PEERS names the folder that has them; without Open
# vSwitch's DPDK build, the goals against `ovs-tso` have no figure.
#
# Usage: docs/results/make.sh [sweeps] [--minutes N] [--cpus N] [NAME…]
#
# With names, only those are measured; the others' pages stay. --minutes: of the experiments, in
# this order, those that fit into N minutes by the plan; what is left out is said. --cpus: on the
# first N CPUs; the pages go to docs/results/cpus-N.
set -eu
cd "$(dirname "$0")/../.."
usage() {
    sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//p}' "$0" >&2
    exit 2
}
rounds=7 options="--seconds 2 --rounds 7 --judged" folder=docs/results minutes='' cpus=''
if [ "${1-}" = sweeps ]; then
    shift
    rounds=3 options="--seconds 2 --rounds 3" folder=docs/results/sweeps
fi
while [ $# -gt 0 ]; do
    case $1 in
    --minutes | --cpus)
        [ $# -gt 1 ] || usage
        case $2 in '' | *[!0-9]*) usage ;; esac
        if [ "$1" = --cpus ]; then cpus=$2; else minutes=$2; fi
        shift 2
        ;;
    -*) usage ;;
    *) break ;;
    esac
done
if [ -n "$cpus" ]; then
    options="$options --cpus $cpus" folder=$folder/cpus-$cpus
fi
if [ -n "$(git status --porcelain -- . ':!docs' ':!*.md')" ]; then
    echo "the tree has changes; commit them first" >&2
    exit 1
fi
SOFTNET_REVISION=$(git rev-parse --short=12 HEAD)
export SOFTNET_REVISION
cargo build --release --locked --workspace --bins --features softnet-bench/allocators
target=${CARGO_TARGET_DIR:-target}
bench=$target/release/softnet-bench
made=$target/results/$SOFTNET_REVISION/$folder
mkdir -p "$made"
if [ -z "${SOFTNET_PEERS-}" ] && ! [ -e /usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk ]; then
    echo "no Open vSwitch with DPDK: its goals will have no figure (SOFTNET_PEERS)" >&2
fi

if [ $# -eq 0 ]; then
    set -- tx-adopt nolock-qdisc bulk-free defer-free backlog switch control all-cores vhost-user \
        sim-check
fi
fits='' planned=0
for name; do
    # shellcheck disable=SC2086 # several words
    line=$("$bench" "$name" $options --plan | head -1)
    # Tenths of a minute; what goes over the bound is left out.
    tenths=$(echo "$line" | awk '{ printf "%d", $4 * 10 }')
    if [ -n "$minutes" ] && [ $((planned + tenths)) -gt $((minutes * 10)) ]; then
        echo "$line: left out, more than $minutes minutes together" >&2
        continue
    fi
    echo "$line"
    planned=$((planned + tenths)) fits="$fits $name"
done
[ -n "$fits" ] || exit 1
# shellcheck disable=SC2086 # several words
set -- $fits
runs=$(for round in $(seq "$rounds"); do printf "%s.$round\n" "$@"; done | shuf)
# One round of an experiment; a process that fails is started once more.
measure() {
    # shellcheck disable=SC2086
    "$bench" "${1%.*}" $options --once --json >"$made/$1.part" ||
        "$bench" "${1%.*}" $options --once --json >"$made/$1.part" || return 1
    mv "$made/$1.part" "$made/$1.json"
}
failed='' n=0
for run in $runs; do
    n=$((n + 1))
    [ -e "$made/$run.json" ] && continue
    echo "$n of $(echo "$runs" | wc -w): $run, $(date +%T)" >&2
    measure "$run" || failed="$failed $run"
done
if [ -n "$failed" ]; then
    echo "failed:$failed; the same command goes on with them" >&2
    exit 1
fi
mkdir -p "$folder"
for name; do
    "$bench" merge "$made/$name".[0-9]*.json >"$folder/$name.json"
    rm -f "$folder/$name"-*.svg
    "$bench" report "$folder/$name.json" --plot "$folder" >"$folder/$name.md"
done
[ "$folder" != docs/results ] ||
    "$bench" scoreboard docs/results/*.json >docs/results/README.md
rm -rf "$made"
