//! `softnet-bench`: measures Softnet beside what one would use instead, on this machine, in one
//! run.
//!
//! The older designs that Softnet is compared with live here, never in the product. An experiment
//! is a function from [`Options`] to the JSON object that `--json` prints; the page that is printed
//! without it is made from the same object.

#![deny(unsafe_code)]

use std::io::Write as _;
use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _};
use serde_json::json;
use softnet_testbed::{cleanup, cpu, hosts, in_process, ping, process, random};

mod all_cores;
mod backlog;
mod baselines;
mod buffers;
mod bulk_free;
mod control;
mod defer_free;
mod experiments;
mod htb_tree;
mod interleave;
mod judge;
mod machine;
mod nolock_qdisc;
mod numbers;
mod options;
mod peers;
mod qdiscs;
mod report;
mod switch;
mod switches;
mod tap_case;
mod tx_adopt;
mod vhost_user;
mod web_case;

/// Why an experiment, or one variant of it, could not be measured.
mod error {
    pub(crate) use softnet_testbed::error::{TestbedError as BenchError, chain};
}

use error::BenchError;
use options::Options;

fn main() -> ExitCode {
    let command = Options::command().after_help(experiments::help());
    let options = Options::from_arg_matches(&command.get_matches()).unwrap_or_else(|e| e.exit());
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            cleanup::wait_if_ending();
            eprintln!("softnet-bench: {}", error::chain(&error));
            ExitCode::from(if matches!(error, BenchError::Usage(_)) {
                2
            } else {
                1
            })
        }
    }
}

fn run(options: &Options) -> Result<(), BenchError> {
    options.check()?;
    if let ("report", Some(file)) = (&*options.experiment, &options.file) {
        return print(&judge::judge(file, options.plot.as_deref())?);
    }
    let chosen = experiments::choose(&options.experiment)?;
    cleanup::on_signals_and_panics().map_err(|e| BenchError::io("catching signals", e))?;
    let machine = machine::describe();
    let mut reports = Vec::new();
    for experiment in chosen {
        let mut report = (experiment.run)(options)?;
        peers::version::add_to(&mut report);
        report["machine"] = machine.clone();
        report["seconds"] = json!(options.seconds);
        report["rounds"] = json!(options.rounds());
        if !options.json {
            print(&judge::page(&report)?)?;
        }
        reports.push(report);
    }
    if options.json {
        let texts: Vec<_> = reports.iter().map(report::lines).collect();
        let document = match &texts[..] {
            [only] => only.clone(),
            several => format!("[{}]\n", several.join(",")),
        };
        print(&document)?;
    }
    Ok(())
}

/// Prints to stdout; a reader that went away (`| head`) is no error.
fn print(text: &str) -> Result<(), BenchError> {
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(BenchError::io("writing to stdout", e))
        }
        _ => Ok(()),
    }
}
