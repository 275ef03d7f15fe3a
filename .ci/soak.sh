#!/usr/bin/env bash
# The packet pool for a minute: 64 threads that allocate, share, hand over, free, sleep and exit at random; then every buffer is there.
set -euo pipefail
cd "$(dirname "$0")/.."
SOFTNET_SOAK_SECONDS="${SOFTNET_SOAK_SECONDS:-60}" cargo test --locked -p softnet --lib soak_with_many_threads -- --nocapture
