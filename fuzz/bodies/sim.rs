//! The readers of words in `softnet sim`, where the program has them.

#[path = "../../crates/softnet-cli/src/sim/expect.rs"]
mod expect;
#[path = "../../crates/softnet-cli/src/sim/generate.rs"]
mod generate;
#[path = "sim_words.rs"]
pub(crate) mod words;

pub(crate) use expect::Expectation;

/// Figures as people read them, which no fuzzer does.
mod output {
    pub(super) fn rate(bits: u64) -> String {
        bits.to_string()
    }

    pub(super) fn time(nanos: u64) -> String {
        nanos.to_string()
    }
}
