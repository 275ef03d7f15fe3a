#![no_main]

#[allow(dead_code, reason = "another target uses the rest")]
#[path = "../bodies/rtnl_messages.rs"]
mod body;
#[allow(dead_code, reason = "tests use the rest")]
#[path = "../bodies/rtnl_service.rs"]
mod service;

libfuzzer_sys::fuzz_target!(|input: &[u8]| body::run(input));
