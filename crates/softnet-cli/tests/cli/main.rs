//! Commands of the program, and daemons on networks of their own. They share a program, as programs
//! of tests are linked one by one and run one after the other; a test that wants all CPUs has one
//! of its own (`demo`).

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
mod sim_results;
mod sim_scripts;
mod stats;
mod uplink;
