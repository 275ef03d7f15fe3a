#!/usr/bin/env bash
# The packet pool for a minute: 64 threads that allocate, share, hand over, free, sleep and exit at random; then every buffer is there. Transmit queues: up to 240 threads against a
# driver that stalls, refuses and resumes at random; then nothing is stuck or lost. (With `SOFTNET_SOAK_SECONDS` each takes so long.)
set -euo pipefail
cd "$(dirname "$0")/.."
SOFTNET_SOAK_SECONDS="${SOFTNET_SOAK_SECONDS:-60}" cargo test --locked -p softnet --lib soak_with_many_threads -- --nocapture
SOFTNET_SOAK_SECONDS="${SOFTNET_SOAK_SECONDS:-10}" cargo test --locked -p softnet --lib tx::stress_tests
