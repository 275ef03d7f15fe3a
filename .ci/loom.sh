#!/usr/bin/env bash
# The models of every protocol: all interleavings up to a bound of preemptions. The crates are built
# together: alone, each would compile those below it anew, with its own features of dependencies.
# Most other tests are left out where they are declared: to compile them takes longer than all
# models.
set -euo pipefail
cd "$(dirname "$0")/.."
export RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/loom"
LOOM_MAX_PREEMPTIONS="${LOOM_MAX_PREEMPTIONS:-3}" cargo test --profile loom --locked --lib \
  -p softnet -p softnet-engine -p softnet-tc -p softnet-io models
