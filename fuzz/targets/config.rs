#![no_main]

#[path = "../bodies/config.rs"]
mod body;
#[allow(dead_code, unused_imports, reason = "the program uses the rest")]
#[path = "../../crates/softnet-cli/src/config/mod.rs"]
mod config;

libfuzzer_sys::fuzz_target!(|input: &[u8]| body::run(input));
