//! Commands of the program, and daemons on networks of their own. One program of tests: each is
//! linked by itself, and tests run beside each other in one program only. A test that wants all
//! CPUs or a time of its own is in another one.

#[path = "../common/mod.rs"]
mod common;

mod config;
mod control_links;
mod helper;
mod import;
mod many_ports;
mod operations;
mod policies;
mod policy_page;
mod probes;
mod replace_refused;
mod run;
mod scheduling;
mod scrape;
mod sim;
mod sim_captures;
mod sim_scripts;
mod stats;
mod uplink;
