#!/usr/bin/env bash
# The demo, an example and each experiment, for a moment: to see them run, not to judge their times.
# So the programs are those that the tests have built and use, which check for overflow, too;
# `.ci/long experiments` measures, with optimized ones and every variant.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo test --workspace --locked --no-run
programs="${CARGO_TARGET_DIR:-target}/debug"
"$programs/softnet" demo --seconds 2 --json
"$programs/softnet-bench" all --judged --seconds 0.25 --rounds 1
"$programs/examples/many_senders" >/dev/null
