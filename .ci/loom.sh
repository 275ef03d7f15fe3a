#!/usr/bin/env bash
# The models of every protocol in sync/: all interleavings up to a bound of preemptions.
set -euo pipefail
cd "$(dirname "$0")/.."
export RUSTFLAGS="--cfg loom" LOOM_MAX_PREEMPTIONS="${LOOM_MAX_PREEMPTIONS:-2}"
CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/loom" \
  cargo test --release --locked -p softnet -p softnet-engine --lib models
