#!/usr/bin/env bash
# The models of every protocol: all interleavings up to a bound of preemptions. With `core` those
# of the core crate alone, with `others` the rest.
set -euo pipefail
cd "$(dirname "$0")/.."
export RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/loom"
models() {
  LOOM_MAX_PREEMPTIONS="${LOOM_MAX_PREEMPTIONS:-$2}" \
    cargo test --release --locked -p "$1" --lib models
}
if [ "${1:-core}" = core ]; then
  models softnet 3
fi
if [ "${1:-others}" = others ]; then
  models softnet-engine 2
  models softnet-tc 3
  models softnet-io 3
fi
