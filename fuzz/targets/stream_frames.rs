#![no_main]

#[path = "../bodies/frames.rs"]
#[allow(dead_code, reason = "another target uses the rest")]
mod body;

libfuzzer_sys::fuzz_target!(|input: &[u8]| body::stream(input));
