//! `softnet-bench`: measures Softnet beside what one would use instead, on this machine, in one
//! run.
//!
//! The older designs that Softnet is compared with live here, never in the product. An experiment
//! is a function from [`Options`] to the JSON object that `--json` prints; the page that is printed
//! without it is made from the same object.

#![deny(unsafe_code)]

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use clap::{CommandFactory as _, FromArgMatches as _};
use serde_json::{Value, json};
use softnet_testbed::{cleanup, cpu, files, hosts, in_process, ping, process, random, traffic};

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
mod merge;
mod nolock_qdisc;
mod numbers;
mod options;
mod peers;
mod qdiscs;
mod report;
mod sim_check;
mod speed;
mod switch;
mod switches;
mod tap_case;
mod tx_adopt;
mod vhost_user;
mod web_case;

/// Why an experiment, or one variant of it, could not be measured.
mod error {
    pub(crate) use softnet_testbed::error::{TestbedError as BenchError, chain};

    /// An error that ends the experiment.
    pub(crate) fn failed(error: impl std::error::Error) -> BenchError {
        BenchError::Measure(chain(&error))
    }
}

use error::BenchError;
use options::Options;

/// Time to wait for a quiet machine.
const PATIENCE: Duration = Duration::from_secs(60);

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
    match (&*options.experiment, &options.files[..]) {
        ("report", [file]) => return print(&judge::judge(file, options.plot.as_deref())?),
        ("scoreboard", files) => return print(&judge::scoreboard(files)?),
        ("merge", files) => {
            let mut merged = merge::read(files)?;
            if let Some(longer) = &options.longer {
                merged = longer.replace(&merged).map_err(merge::apart)?;
            }
            return print(&report::lines(&merged));
        }
        _ => {}
    }
    let chosen = experiments::choose(&options.experiment)?;
    if let Some(count) = options.cpus {
        machine::stay_on(count)?;
    }
    cleanup::on_signals_and_panics().map_err(|e| BenchError::io("catching signals", e))?;
    if options.plan {
        return print(&plan(&chosen, options)?);
    }
    let mut machine = machine::describe();
    if options.once {
        let busy = machine::settle(PATIENCE)?;
        machine["busy_percent"] = json!(busy);
    }
    let mut reports = Vec::new();
    for experiment in chosen {
        let steal = machine::Steal::begin();
        let mut report = (experiment.run)(&options.of(experiment.name))?;
        let cpus = machine["cpus"].as_u64().map_or(1, |cpus| cpus as usize);
        let stolen = steal.share(cpus) * 100.0;
        peers::version::add_to(&mut report);
        report["machine"] = machine.clone();
        report["machine"]["steal_percent"] = json!(numbers::significant(stolen, 2));
        report["seconds"] = json!(options.seconds);
        report["rounds"] = json!(options.rounds().count);
        report["judged"] = json!(options.judged);
        if let Some(cpus) = options.cpus {
            report["cpus"] = json!(cpus);
        }
        if !options.json {
            print(&judge::page(&report)?)?;
        }
        reports.push(report);
    }
    let is_empty = |report: &Value| report["rows"].as_array().is_none_or(Vec::is_empty);
    if !options.only.is_empty() && reports.iter().all(is_empty) {
        let text = format!("no row has --only {}", options.only.join(","));
        return Err(BenchError::Usage(text));
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

/// The time that the experiments would take with these options, as a table.
fn plan(chosen: &[&experiments::Experiment], options: &Options) -> Result<String, BenchError> {
    let mut text = String::new();
    let (mut turns, mut seconds) = (0, 0.0);
    for experiment in chosen {
        let report = (experiment.run)(&options.of(experiment.name))?;
        let one = (report["plan"][0].as_u64(), report["plan"][1].as_f64());
        let one = (one.0.unwrap_or(0), one.1.unwrap_or(0.0));
        let _ = writeln!(
            text,
            "{:14} {:6} turns {:6.1} minutes",
            experiment.name,
            one.0,
            one.1 / 60.0
        );
        turns += one.0;
        seconds += one.1;
    }
    let _ = writeln!(
        text,
        "{:14} {turns:6} turns {:6.1} minutes",
        "all",
        seconds / 60.0
    );
    Ok(text)
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
