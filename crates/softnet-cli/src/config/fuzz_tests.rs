//! Replays the corpus of the fuzzer of configurations.

#[path = "../../../../fuzz/bodies/config.rs"]
mod config;
#[path = "../../../../fuzz/bodies/corpus.rs"]
pub(crate) mod corpus;

#[test]
fn configurations() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    corpus::replay(root.as_ref(), "config", config::run);
}
