//! Replays the corpus of the fuzzer of the privileged helper.

#![cfg(not(miri))]

#[path = "../../../fuzz/bodies/corpus.rs"]
mod corpus;
#[path = "../../../fuzz/bodies/helper_requests.rs"]
mod helper_requests;

#[test]
fn requests() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    corpus::replay(root.as_ref(), "helper_requests", helper_requests::run);
}
