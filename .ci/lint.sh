#!/usr/bin/env bash
# Language of comments, formatting, and clippy with warnings denied, as crates are used and with
# every feature.
set -euo pipefail
cd "$(dirname "$0")/.."
bash .ci/language.sh
cargo fmt --all -- --check
cargo clippy --workspace --all-targets --locked -- -D warnings
cargo clippy --workspace --all-targets --all-features --locked -- -D warnings
# The fuzzers' targets, a workspace of their own: they must build. What they share with this one is
# not compiled again.
cargo fmt --manifest-path fuzz/Cargo.toml -- --check
CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}" \
  cargo clippy --manifest-path fuzz/Cargo.toml --locked -- -D warnings
