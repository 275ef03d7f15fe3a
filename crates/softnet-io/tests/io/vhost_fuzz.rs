//! Hostile front ends and drivers: the fuzzers' corpora.

use crate::corpus;

#[path = "../../../../fuzz/bodies/vhost_messages.rs"]
mod vhost_messages;
#[path = "../../../../fuzz/bodies/vhost_ring.rs"]
mod vhost_ring;

#[test]
fn rings() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    corpus::replay(root.as_ref(), "vhost_ring", vhost_ring::run);
}

#[test]
fn messages() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    corpus::replay(root.as_ref(), "vhost_messages", vhost_messages::run);
}
