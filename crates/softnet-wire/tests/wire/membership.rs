//! Membership messages: what was found by fuzzing, and one of each kind.

use crate::corpus;

#[path = "../../../../fuzz/bodies/membership.rs"]
mod fuzz;

#[test]
fn corpus_replay() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    corpus::replay(root.as_ref(), "membership", fuzz::run);
}
