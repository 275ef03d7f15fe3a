#!/usr/bin/env bash
# Small changes of the code (`>` for `>=`, a constant for a result), each of which a test of its
# crate must notice. Prints how many of a sample do; fails below 95 of 100.
#   .ci/mutants.sh [COUNT]
set -euo pipefail
cd "$(dirname "$0")/.."
count="${1:-150}"
cargo mutants --version >/dev/null 2>&1 || cargo install -q cargo-mutants --locked
out="${CARGO_TARGET_DIR:-target}/mutants"
mkdir -p "$out"
files=(
  crates/softnet-tc/src/{rate,qdisc/{htb,fq,tbf,fq_codel}}/**
  crates/softnet-engine/src/{forward,rx}/**
  crates/softnet-io/src/vhost_user/**
)
arguments=()
for file in "${files[@]}"; do arguments+=(--file "$file"); done
all=$(cargo mutants --list "${arguments[@]}" | wc -l)
# One of so many, spread evenly.
shards=$(((all + count - 1) / count))
rc=0
cargo mutants "${arguments[@]}" --shard "$((RANDOM % shards))/$shards" --sharding round-robin \
  --baseline skip --timeout 300 --output "$out" --copy-target true --colors never || rc=$?
caught=$(wc -l <"$out/mutants.out/caught.txt")
hung=$(wc -l <"$out/mutants.out/timeout.txt")
missed=$(wc -l <"$out/mutants.out/missed.txt")
echo "caught $caught, hung $hung, missed $missed"
cat "$out/mutants.out/missed.txt"
[ $(((caught + hung) * 100)) -ge $(((caught + hung + missed) * 95)) ]
