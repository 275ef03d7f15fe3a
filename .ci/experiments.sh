#!/usr/bin/env bash
# The demo and each experiment, for a moment: to see them run, not to judge their times. The
# programs are those of the step `build`: cargo would build each anew, with its own features alone.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo build --release --locked -p softnet-cli -p softnet-bench
programs="${CARGO_TARGET_DIR:-target}/release"
"$programs/softnet" demo --seconds 2 --json
"$programs/softnet-bench" all --seconds 0.25 --rounds 1
# The tests have built it.
cargo run --locked -q -p softnet-tc --example many_senders >/dev/null
