#!/usr/bin/env bash
# The README's test command; a test that would be skipped is a failure here. The soak tests (the
# packet pool and transmit queues under up to 240 threads, virtual machines that fail) take longer
# than when run by hand; `.ci/long soak` has minutes of them.
set -euo pipefail
cd "$(dirname "$0")/.."
export SOFTNET_TEST_REQUIRE=1 SOFTNET_SOAK_SECONDS="${SOFTNET_SOAK_SECONDS:-5}"
export SOFTNET_VM_SOAK_SECONDS="${SOFTNET_VM_SOAK_SECONDS:-15}"
cargo test --workspace --locked
