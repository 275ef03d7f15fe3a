//! The reader of expectations, where the program has it.

#[path = "../../crates/softnet-cli/src/config/expectation.rs"]
mod expectation;

pub(crate) use expectation::{Expectation, time};
pub(crate) use softnet_tc::units;
