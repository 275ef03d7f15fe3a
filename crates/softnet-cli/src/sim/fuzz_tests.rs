//! Replays the corpus of the fuzzer of flows and expectations.

use crate::config::fuzz_tests::corpus;

#[path = "../../../../fuzz/bodies/sim_words.rs"]
mod sim_words;

#[test]
fn words() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    corpus::replay(root.as_ref(), "sim_words", sim_words::run);
}
