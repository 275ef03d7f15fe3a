#!/usr/bin/env bash
# Undefined behaviour and weak memory, in the unit tests and the transmit tests of the core and in
# those of the engine, which runs its threads, the shared rates, and pointers into guest memory;
# modules without unsafe code are left out where they are declared: `not(miri)`. All other unsafe
# code is for system calls alone. With `core` the core's unit tests alone, with `others` the rest.
set -euo pipefail
cd "$(dirname "$0")/.."
export MIRIFLAGS="-Zmiri-strict-provenance -Zmiri-disable-isolation"
part="${1:-all}"
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/miri-$part"
run() { cargo +nightly miri test --locked "$@"; }
if [ "$part" != others ]; then
  run -p softnet --lib -- -Zunstable-options --report-time
fi
if [ "$part" != core ]; then
  run -p softnet-tc --lib rate::
  run -p softnet-io --lib pointer_tests
  run -p softnet --test tx -- -Zunstable-options --report-time
  run -p softnet-engine --lib -- -Zunstable-options --report-time
fi
