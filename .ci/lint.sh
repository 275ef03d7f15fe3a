#!/usr/bin/env bash
# Language of comments, formatting, and clippy with warnings denied: as crates are used, and the
# libraries and tests that know the feature `check` with it. (`testing` is on wherever tests are;
# `allocators` builds three C and C++ libraries first: `.ci/long lint`, with every feature of all.)
set -euo pipefail
cd "$(dirname "$0")/.."
bash .ci/language.sh
cargo fmt --all -- --check
cargo clippy --workspace --all-targets --locked -- -D warnings
cargo clippy --workspace --lib --test af_xdp --test check --features softnet-io/check --locked -- \
  -D warnings
# The fuzzers' targets, a workspace of their own: they must build. What they share with this one is
# not compiled again, and libFuzzer itself, C++ that clippy does not link, not at all: the variable
# says that it is there.
cargo fmt --manifest-path fuzz/Cargo.toml -- --check
CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}" CUSTOM_LIBFUZZER_PATH="$PWD/fuzz/Cargo.toml" \
  cargo clippy --manifest-path fuzz/Cargo.toml --locked -- -D warnings
