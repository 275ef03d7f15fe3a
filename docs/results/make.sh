#!/bin/sh
# Measures again and writes docs/results: NAME.json, NAME.md, the pictures and README.md. What goals
# are about takes an hour, on a machine that does nothing else; `sweeps` measures all cells and
# variants in fewer rounds, for less than two hours, and writes docs/results/sweeps. Each round is a
# process of its own, in random order. Usage: docs/results/make.sh [sweeps] [NAME…]
set -eu
cd "$(dirname "$0")/../.."
if [ -n "$(git status --porcelain -- . ':!docs' ':!*.md')" ]; then
    echo "the tree has changes; commit them first" >&2
    exit 1
fi
SOFTNET_REVISION=$(git rev-parse --short=12 HEAD)
export SOFTNET_REVISION
cargo build --release --locked --workspace --bins --features softnet-bench/allocators
bench=target/release/softnet-bench
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT

if [ "${1-}" = sweeps ]; then
    shift
    rounds=3 options="--seconds 2 --rounds 3" folder=docs/results/sweeps
else
    rounds=7 options="--seconds 2 --rounds 7 --judged" folder=docs/results
fi
if [ $# -eq 0 ]; then
    set -- tx-adopt nolock-qdisc bulk-free defer-free backlog switch control all-cores vhost-user
fi
for name; do
    # shellcheck disable=SC2086 # several words
    "$bench" "$name" $options --plan | head -1
done
runs=$(for round in $(seq "$rounds"); do printf "%s.$round\n" "$@"; done | shuf)
for run in $runs; do
    # shellcheck disable=SC2086
    "$bench" "${run%.*}" $options --once --json >"$made/$run.json"
done
mkdir -p "$folder"
for name; do
    "$bench" merge "$made/$name".[0-9]*.json >"$folder/$name.json"
    rm -f "$folder/$name"-*.svg
    "$bench" report "$folder/$name.json" --plot "$folder" >"$folder/$name.md"
done
[ "$folder" != docs/results ] ||
    "$bench" scoreboard docs/results/*.json >docs/results/README.md
