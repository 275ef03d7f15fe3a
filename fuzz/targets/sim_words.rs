#![no_main]

#[allow(dead_code, unused_imports, reason = "the program uses the rest")]
#[path = "../bodies/sim.rs"]
mod sim;

#[allow(dead_code, unused_imports, reason = "the program uses the rest")]
#[path = "../bodies/sim_config.rs"]
mod config;

libfuzzer_sys::fuzz_target!(|input: &[u8]| sim::words::run(input));
