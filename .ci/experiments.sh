#!/usr/bin/env bash
# The demo and each experiment, for a moment: to see them run, not to judge their times.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo run --release --locked -- demo --seconds 2 --json
cargo run --release --locked -p softnet-bench -- all --seconds 0.25 --rounds 1
# The tests have built it.
cargo run --locked -q -p softnet-tc --example many_senders >/dev/null
