//! Hostile drivers: the fuzzer's corpus.

#![cfg(not(miri))]

#[path = "../../../fuzz/bodies/corpus.rs"]
mod corpus;
#[path = "../../../fuzz/bodies/vhost_ring.rs"]
mod vhost_ring;

#[test]
fn corpus() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    corpus::replay(root.as_ref(), "vhost_ring", vhost_ring::run);
}
