#!/usr/bin/env bash
# Undefined behaviour and weak memory: sync, pool, packet handles, transmit queues. (The parsers have no unsafe code.)
set -euo pipefail
cd "$(dirname "$0")/.."
MIRIFLAGS="-Zmiri-strict-provenance -Zmiri-disable-isolation" CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/miri" \
  cargo +nightly miri test --locked -p softnet --lib -- sync:: pool:: packet::tests rx::backlog rx::handover \
  tx::tests tx::standalone_tests
