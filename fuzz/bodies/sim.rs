//! The readers of words in `softnet sim`, where the program has them.

#[path = "../../crates/softnet-cli/src/sim/expect.rs"]
mod expect;
#[path = "../../crates/softnet-cli/src/sim/generate.rs"]
mod generate;
#[path = "../../crates/softnet-cli/src/sim/shown.rs"]
mod shown;
#[path = "sim_words.rs"]
pub(crate) mod words;

pub(crate) use expect::Expectation;
