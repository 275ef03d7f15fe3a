//! Filters of captures: the fuzzer's corpus.

#![cfg(not(miri))]

#[path = "../../../../fuzz/bodies/capture_filter.rs"]
mod body;
#[path = "../../../../fuzz/bodies/corpus.rs"]
mod corpus;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

#[test]
fn filters() {
    corpus::replay(ROOT.as_ref(), "capture_filter", body::run);
}
