#!/usr/bin/env bash
# What the steps that run alone would otherwise compile.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo test --workspace --locked --no-run
