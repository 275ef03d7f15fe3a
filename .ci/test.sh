#!/usr/bin/env bash
# The README's test command; a test that would be skipped is a failure here.
set -euo pipefail
cd "$(dirname "$0")/.."
SOFTNET_TEST_REQUIRE=1 cargo test --workspace --locked
