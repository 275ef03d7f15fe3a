#!/usr/bin/env bash
# Undefined behaviour and weak memory, in the unit tests and the transmit tests of the core and in
# those of the engine, which runs its threads, the shared rates, and pointers into guest memory;
# modules without unsafe code are left out where they are declared: `not(any(loom, miri))`. All
# other unsafe code is for system calls alone. With `core` the core's unit tests alone, with
# `others` the rest. Tests that take more than a quarter of a minute each, or five seconds for what
# others touch as well (positions, bounds, wake-ups), are left to `.ci/long miri` (`all`).
set -euo pipefail
cd "$(dirname "$0")/.."
export MIRIFLAGS="-Zmiri-strict-provenance -Zmiri-disable-isolation"
part="${1:-all}"
run() { cargo +nightly miri test --locked "$@"; }
long=()
if [ "$part" != all ]; then
  for test in \
    mem::bug_tests::bug_buf_{1_,2_,3_,7_each,8_} mem::testing::controls \
    mem::defer_tests::{inv_buf_10,inv_buf_5,statistics_count,sleeping,two_hundred,balanced} \
    mem::defer_tests::{inv_buf_3,unregistered} mem::property_tests::every_buffer \
    mem::range_tests::{every_position,extend_by,the_end,reserve_of} \
    mem::pool_tests::exhaustion \
    basic::{changing_between,senders_keep,a_shaped_device,inv_tx_12_a_sender} \
    control::a_tree_is_changed sender::senders_that_wait \
    bound::{who_does_not_yield,a_call_adopts,what_is_due} rx::hand_off::tests::overflow \
    rx::backlog::tests::large_frames; do
    long+=(--skip "$test")
  done
fi
if [ "$part" != others ]; then
  run -p softnet --lib -- -Zunstable-options --report-time "${long[@]}"
fi
if [ "$part" != core ]; then
  # Together: alone, the drivers would be compiled anew, and all below, with other features.
  run -p softnet-tc -p softnet-io --lib -- rate:: pointer_tests
  run -p softnet --test tx -- -Zunstable-options --report-time "${long[@]}"
  run -p softnet-engine --lib -- -Zunstable-options --report-time "${long[@]}"
fi
