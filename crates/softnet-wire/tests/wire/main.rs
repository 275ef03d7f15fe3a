//! The parsers against another implementation, and hostile input by name.

#![cfg(not(miri))]

#[allow(dead_code, reason = "the tests of softnet use the rest")]
mod frames;
mod parse;
mod vnet;
