//! The parsers against another implementation, and hostile input by name.

#![cfg(not(miri))]

#[path = "../../../../fuzz/bodies/corpus.rs"]
mod corpus;
#[allow(dead_code, reason = "the tests of softnet use the rest")]
mod frames;
#[path = "../../../../fuzz/bodies/parse.rs"]
mod fuzz;
mod membership;
mod parse;
mod sender;
mod tunnel;
mod vnet;
