#!/usr/bin/env bash
# The README's test command; a test that would be skipped is a failure here. The soak tests (the
# packet pool and transmit queues under up to 240 threads, an operator's days) take two seconds
# each; `.ci/long soak` has minutes of them, and of virtual machines that fail.
set -euo pipefail
cd "$(dirname "$0")/.."
export SOFTNET_TEST_REQUIRE=1 SOFTNET_SOAK_SECONDS="${SOFTNET_SOAK_SECONDS:-2}"
cargo test --workspace --locked
