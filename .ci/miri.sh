#!/usr/bin/env bash
# Undefined behaviour and weak memory, in the unit tests and the transmit tests of the core and in
# those of the engine, which runs its threads, the shared rates, and pointers into guest memory;
# modules without unsafe code are left out where they are declared: `not(miri)`. All other unsafe
# code is for system calls alone.
set -euo pipefail
cd "$(dirname "$0")/.."
export MIRIFLAGS="-Zmiri-strict-provenance -Zmiri-disable-isolation"
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/miri"
cargo +nightly miri test --locked -p softnet-tc --lib rate::
cargo +nightly miri test --locked -p softnet-io --lib pointer_tests
cargo +nightly miri test --locked -p softnet -p softnet-engine --lib --test tx -- \
  -Zunstable-options --report-time
