#![no_main]

#[allow(dead_code, unused_imports, reason = "the program uses the rest")]
#[path = "../bodies/sim.rs"]
mod sim;

/// As the program has it.
mod config {
    pub(crate) use softnet_tc::units;
}

libfuzzer_sys::fuzz_target!(|input: &[u8]| sim::words::run(input));
