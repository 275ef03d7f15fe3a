//! Kit of the end-to-end tests: networks of hosts in namespaces joined by an engine in this process
//! ([`Lan`]), virtual machines' memory and front ends ([`guest`]) and what hostile ones do
//! ([`attack`]), traffic with ordinary sockets ([`traffic`]), raw frames ([`raw`]) and the kernel's
//! own counters ([`counters`]) to compare Softnet's with, and the kernel's qdiscs to compare ours
//! with ([`oracle`]).
//!
//! Everything panics on failure, as tests do, and leaves nothing behind: namespaces and devices
//! have no names outside the process and end with it. [`skip`] and [`wait_for`] serve the tests of
//! the other crates too.

#![deny(unsafe_code)]

pub mod attack;
pub mod counters;
pub mod guest;
mod lan;
pub mod oracle;
pub mod qemu;
pub mod raw;
mod sys;
pub mod traffic;

use std::fs::OpenOptions;
use std::io::Write as _;
use std::time::{Duration, Instant};

pub use lan::{Host, HostConfig, Lan, LanConfig, Via, Wire};
pub use softnet_testbed::random;

/// Longer than anything a test waits for takes on a slow machine.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Says that a test was skipped, also in `target/skipped.txt`; or fails where skipping is forbidden
/// (`SOFTNET_TEST_REQUIRE=1`).
pub fn skip(why: &str) {
    assert!(
        std::env::var_os("SOFTNET_TEST_REQUIRE").is_none_or(|v| v != "1"),
        "a skip is refused: {why}"
    );
    let thread = std::thread::current();
    let line = format!("{}: {why}\n", thread.name().unwrap_or("a test"));
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/skipped.txt");
    let opened = OpenOptions::new().create(true).append(true).open(file);
    // Where that cannot be written, the line below is all there is.
    let _ = opened.and_then(|mut file| file.write_all(line.as_bytes()));
    eprint!("skipped: {line}");
}

/// Waits until `done`, and fails the test if that never happens.
pub fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < PATIENCE, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The code in the documents, compiled and run.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../../docs/embed.md")]
    mod embed {}
    #[doc = include_str!("../../docs/write-a-driver.md")]
    mod write_a_driver {}
    #[doc = include_str!("../../docs/write-a-qdisc.md")]
    mod write_a_qdisc {}
}
