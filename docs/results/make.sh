#!/bin/sh
# Measures everything again and writes docs/results: NAME.json, NAME.md and the pictures. Some 25 minutes for the experiments here, on a machine
# that does nothing else. Usage: docs/results/make.sh [NAME…]
set -eu
cd "$(dirname "$0")/../.."
if [ -n "$(git status --porcelain -- . ':!docs' ':!*.md')" ]; then
    echo "the tree has changes; commit them first" >&2
    exit 1
fi
cargo build --release --locked -p softnet-bench --features allocators
bench=target/release/softnet-bench
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT

# What a figure of a variant gets over all rounds differs by what an experiment measures.
seconds() {
    case $1 in
    tx-adopt) echo 3.5 ;;
    nolock-qdisc) echo 3.5 ;;
    bulk-free) echo 3.5 ;;
    defer-free) echo 3.5 ;;
    backlog) echo 3.5 ;;
    # Ten seconds a turn.
    control) echo 70 ;;
    all-cores) echo 7 ;;
    vhost-user) echo 3.5 ;;
    *) echo 4 ;;
    esac
}

if [ $# -eq 0 ]; then
    set -- tx-adopt nolock-qdisc bulk-free defer-free backlog switch control all-cores \
        vhost-user
fi
for name; do
    "$bench" "$name" --seconds "$(seconds "$name")" --rounds 7 --json >"$made/$name.json"
    "$bench" report "$made/$name.json" --plot "$made" >"$made/$name.md"
    rm -f docs/results/"$name"-*.svg
    # Not every experiment has a picture.
    find "$made" -name "$name*" -exec mv {} docs/results/ \;
done
