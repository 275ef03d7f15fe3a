#!/usr/bin/env bash
# The documentation builds without a warning.
set -euo pipefail
cd "$(dirname "$0")/.."
# The program and the library are both called softnet: one page would overwrite the other, so that
# the program's internals are left out.
RUSTDOCFLAGS="-D warnings" cargo doc --workspace --exclude softnet-cli --no-deps --locked
