#![no_main]

#[path = "../bodies/offload.rs"]
mod body;
#[allow(dead_code, reason = "shared with tests that use the rest")]
#[path = "../../crates/softnet-wire/tests/wire/frames.rs"]
mod frames;

libfuzzer_sys::fuzz_target!(|input: &[u8]| body::run(input));
