//! `softnet demo`: two hosts, a switch between them, real traffic, a rate limit, and the books
//! balanced at the end.
//!
//! [`topology`] is what is built, [`traffic`] what the hosts do, [`measure`] the sequence of
//! measurements, [`results`] what is printed. Everything is in this process: there is no name and
//! no child that could be left behind.

mod end;
mod host;
mod measure;
mod plot;
mod privilege;
mod progress;
mod results;
mod svg;
mod topology;
mod traffic;

use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::Instant;

use crate::failure::{Exit, Failure, chain};
use crate::report;
use crate::signals::Stop;
use end::End;
use measure::Measurement;
use progress::Progress;
use topology::Topology;

/// The options of the command line.
#[derive(Debug)]
pub(crate) struct Options {
    /// Measuring time in all.
    pub seconds: u64,
    /// One JSON object instead of a table.
    pub json: bool,
    /// File for a picture.
    pub plot: Option<PathBuf>,
    /// When the process started.
    pub started: Instant,
}

/// Runs the demo.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    match demonstrate(options) {
        Ok(()) => Ok(()),
        Err(End::Failed(failure)) => Err(failure),
        Err(End::Interrupted) => Err(Failure::new(Exit::Interrupted, "interrupted")),
    }
}

fn demonstrate(options: &Options) -> Result<(), End> {
    // Before anything starts a thread.
    privilege::acquire().map_err(|why| End::Failed(Failure::new(Exit::Failure, why)))?;
    let stop = Stop::on_signals().map_err(End::io("cannot catch signals"))?;
    let topology = Topology::build().map_err(|error| {
        let text = format!("cannot build the demo's network: {}", chain(&error));
        End::Failed(Failure::new(Exit::Failure, text))
    })?;
    let terminal = std::io::stdout().is_terminal() && std::io::stderr().is_terminal();
    let progress = Progress::new(terminal && !options.json, options.seconds);
    let measured = Measurement {
        topology: &topology,
        stop: &stop,
        progress: &progress,
    }
    .run(options.seconds, options.started);
    progress.finish();
    // Stopped in any case: devices are gone and counters final before anything is printed.
    let stats = topology.close();
    let results = measured?.conclude(&stats);
    let text = if options.json {
        results.json()
    } else {
        results.table()
    };
    report::print(&text).map_err(End::io("cannot print the results"))?;
    if let Some(file) = &options.plot {
        std::fs::write(file, results.svg()).map_err(|error| {
            let what = format!("cannot write {}", file.display());
            End::Failed(Failure::because(Exit::Failure, &what, &error))
        })?;
    }
    results
        .verdict()
        .map_err(|why| End::Failed(Failure::new(Exit::Failure, why)))
}
