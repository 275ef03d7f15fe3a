#![no_main]

#[path = "../bodies/config.rs"]
mod body;
#[allow(dead_code, unused_imports, reason = "the program uses the rest")]
#[path = "../../crates/softnet-cli/src/config/mod.rs"]
mod config;
#[allow(dead_code, unused_imports, reason = "the program uses the rest")]
#[path = "../../crates/softnet-cli/src/sim/expect.rs"]
mod expect;
#[path = "../../crates/softnet-cli/src/sim/shown.rs"]
mod shown;

/// The program's module of expectations, which `[[expect]]` is read into.
mod sim {
    pub(crate) use crate::expect::Expectation;
}

libfuzzer_sys::fuzz_target!(|input: &[u8]| body::run(input));
