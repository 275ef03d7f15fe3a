#!/bin/sh
# Measures again and writes docs/results: NAME.json, NAME.md, the pictures and README.md. What goals
# are about takes an hour, on a machine that does nothing else. Then cells that are undecided, and
# those that goals compare them with, are measured longer: anew, in 15 rounds instead of 7, for some
# two hours at most. These figures take the place of the first ones, and the page says where.
# `longer` does that alone, for pages that programs of HEAD have measured. `sweeps` measures all
# cells and variants in fewer rounds, for two hours at most, and writes docs/results/sweeps. Each
# round is a process of its own, in random order. What was measured stays in target/results until
# all pages are made: the same command at the same revision goes on where it stopped.
#
# The newest peers are measured where SOFTNET_PEERS names the folder that has them; without Open
# vSwitch's DPDK build, the goals against `ovs-tso` have no figure.
#
# Usage: docs/results/make.sh [sweeps|longer] [--minutes N] [--cpus N] [NAME…]
#
# With names, only those are measured; the others' pages stay. --minutes: of the experiments, in
# this order, those that fit into N minutes by the plan, then of those with undecided cells; what is
# left out is said. --cpus: on the first N CPUs; the pages go to docs/results/cpus-N.
set -eu
cd "$(dirname "$0")/../.."
usage() {
    sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//p}' "$0" >&2
    exit 2
}
rounds=7 longer=15 options="--seconds 2 --judged" folder=docs/results minutes='' cpus=''
case ${1-} in
sweeps)
    shift
    rounds=3 longer='' options="--seconds 2" folder=docs/results/sweeps
    ;;
longer)
    shift
    rounds=''
    ;;
esac
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
# An experiment with further options. `part` is `.longer` for what is measured longer.
experiment() {
    of=$1
    shift
    # shellcheck disable=SC2086 # several words
    "$bench" "$of" $options --rounds "$rounds" ${part:+--longer "$folder/$of.json"} "$@"
}
# Says how long each of these experiments takes, and sets `fits` to those to measure.
plan() {
    fits=''
    for name; do
        line=$(experiment "$name" --plan | head -1)
        # The program has said what is wrong, such as a page of another revision.
        [ -n "$line" ] || exit 1
        case "$part$line" in .longer*" 0 turns "*) continue ;; esac
        line="$line${part:+ longer}"
        # Tenths of a minute; what goes over the bound is left out.
        tenths=$(echo "$line" | awk '{ printf "%d", $4 * 10 }')
        if [ -n "$minutes" ] && [ $((planned + tenths)) -gt $((minutes * 10)) ]; then
            echo "$line: left out, more than $minutes minutes together" >&2
            out=1
            continue
        fi
        echo "$line"
        planned=$((planned + tenths)) fits="$fits $name"
    done
}
# One round of an experiment.
round() {
    experiment "${1%%.*}" --once --json >"$made/$1.part" || return 1
    mv "$made/$1.part" "$made/$1.json"
}
# All rounds of these experiments that are not there; a process that fails is started once more.
measure() {
    runs=$(for round in $(seq "$rounds"); do printf "%s$part.$round\n" "$@"; done | shuf)
    failed='' n=0
    for run in $runs; do
        n=$((n + 1))
        [ -e "$made/$run.json" ] && continue
        echo "$n of $(echo "$runs" | wc -w): $run, $(date +%T)" >&2
        round "$run" || round "$run" || failed="$failed $run"
    done
    if [ -n "$failed" ]; then
        echo "failed:$failed; the same command goes on with them" >&2
        exit 1
    fi
}
# The pages of these experiments.
pages() {
    mkdir -p "$folder"
    for name; do
        "$bench" merge ${part:+--longer "$folder/$name.json"} \
            "$made/$name$part".[0-9]*.json >"$made/$name.merged"
        mv "$made/$name.merged" "$folder/$name.json"
        rm -f "$folder/$name"-*.svg
        "$bench" report "$folder/$name.json" --plot "$folder" >"$folder/$name.md"
    done
    [ "$folder" != docs/results ] ||
        "$bench" scoreboard docs/results/*.json >docs/results/README.md
}
planned=0
if [ -n "$rounds" ]; then
    part=''
    plan "$@"
    [ -n "$fits" ] || exit 1
    if [ -n "$longer" ]; then
        most=$((planned * longer / rounds / 10))
        echo "then what is undecided, in $longer rounds: $most minutes at most"
    fi
    # shellcheck disable=SC2086 # several words
    set -- $fits
    measure "$@"
    pages "$@"
fi
if [ -n "$longer" ]; then
    part=.longer rounds=$longer
    plan "$@"
    if [ -n "$fits" ]; then
        # shellcheck disable=SC2086
        set -- $fits
        measure "$@"
        pages "$@"
    fi
fi
# What was left out may be measured by the same command with more minutes.
[ -n "${out-}" ] || rm -rf "$made"
