#!/usr/bin/env bash
# Undefined behaviour and weak memory, in all unit tests of the core but those of modules without
# unsafe code, which say so where they are declared: `not(miri)`.
set -euo pipefail
cd "$(dirname "$0")/.."
MIRIFLAGS="-Zmiri-strict-provenance -Zmiri-disable-isolation" \
  CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/miri" \
  cargo +nightly miri test --locked -p softnet -p softnet-engine --lib --test tx -- -Zunstable-options --report-time
