//! The readers of words in `softnet sim`, where the program has them.

#[path = "../../crates/softnet-cli/src/sim/generate.rs"]
mod generate;
#[path = "sim_words.rs"]
pub(crate) mod words;
