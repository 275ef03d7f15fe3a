#!/usr/bin/env bash
# The documentation builds without a warning.
set -euo pipefail
cd "$(dirname "$0")/.."
# The program and the library are both called softnet: one page each would overwrite the other, so the program's internals are left out.
RUSTDOCFLAGS="-D warnings" cargo doc --workspace --exclude softnet-cli --no-deps --locked
