//! Filters against a plain reading of what they mean: the fuzzer's corpus, and random inputs.

#![cfg(not(miri))]

#[path = "../../../fuzz/bodies/corpus.rs"]
mod corpus;
#[path = "../../../fuzz/bodies/filters.rs"]
mod filters;

use proptest::prelude::*;

#[test]
fn corpus() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    corpus::replay(root.as_ref(), "filters", filters::run);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn random_filters_decide_as_they_read(input in prop::collection::vec(any::<u8>(), 0..600)) {
        filters::run(&input);
    }
}
