//! The `softnet` program: reads the command line and a configuration, builds an engine, prints.
//! The packet path is in the libraries; see `ARCHITECTURE.md`.

#![deny(unsafe_code)]

mod bars;
mod capture;
mod change;
mod check;
mod classes;
mod cli;
mod client;
mod config;
mod counters;
mod daemon;
mod demo;
mod documents;
mod exec;
mod failure;
mod filters;
mod import;
mod left_out;
mod log;
mod metrics;
mod notify;
mod pcapng;
mod port;
mod privileges;
mod reload;
mod replace;
mod report;
mod saver;
mod selection;
mod setup;
mod signals;
mod sim;
mod socket;
mod state;
mod stats;
mod store;
mod top;
mod workers;

use std::process::ExitCode;
use std::time::Instant;

fn main() -> ExitCode {
    cli::run(Instant::now())
}
