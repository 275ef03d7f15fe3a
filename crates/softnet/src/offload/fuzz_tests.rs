//! Replays the corpora of the fuzzers that need packets.

#[path = "../../../../fuzz/bodies/corpus.rs"]
mod corpus;
#[path = "../../../../fuzz/bodies/offload.rs"]
mod offload;
#[path = "../../../../fuzz/bodies/vnet.rs"]
pub(super) mod vnet;

use super::testing::frames;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

#[test]
fn virtio_net_headers() {
    corpus::replay(ROOT.as_ref(), "vnet", vnet::run);
}

#[test]
fn segmenting_and_merging() {
    corpus::replay(ROOT.as_ref(), "offload", offload::run);
}
