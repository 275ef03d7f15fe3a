//! The command line.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::error::BenchError;
use crate::interleave::Rounds;
use crate::judge::Longer;
use crate::machine::REVISION;
use crate::report::{Param, text};

/// Runs of less than this many seconds are to see that all works: they leave out what repeats.
pub(crate) const SHORT: f64 = 2.0;
/// The shortest window: the time in which a figure of a variant is measured in one round. With
/// many threads, each is to run several times in it.
const WINDOW: Duration = Duration::from_millis(250);
const WINDOW_OF_MANY: Duration = Duration::from_secs(1);
const MANY: usize = 60;

/// Measure Softnet beside what one would use instead.
#[derive(Debug, Clone, clap::Parser)]
#[command(version, about)]
pub(crate) struct Options {
    /// The experiment to run, or `all`; `report`: judge the results in FILE; `scoreboard`: count
    /// the verdicts of all FILEs; `merge`: one result of the FILEs that runs with `--once` printed.
    pub(crate) experiment: String,
    /// The JSON that an experiment printed with `--json`.
    #[arg(required_if_eq_any([("experiment", "report"), ("experiment", "scoreboard"),
        ("experiment", "merge")]))]
    pub(crate) files: Vec<PathBuf>,
    /// Time for each figure of each variant over all rounds, in seconds. A round's window is this
    /// by the number of rounds, but at least 0.25 s, or 1 s with 60 threads and more. Less than 2:
    /// a run to see that all works, with shorter windows and fewer cases.
    #[arg(long, value_name = "N", default_value_t = 2.0)]
    pub(crate) seconds: f64,
    /// Turns of each variant.
    #[arg(long, value_name = "N", default_value_t = 7)]
    pub(crate) rounds: usize,
    /// Numbers of threads to measure with, for experiments that vary them.
    #[arg(long, value_name = "a,b,c", value_delimiter = ',')]
    pub(crate) threads: Vec<usize>,
    /// Run on the first N of the CPUs that this process may use, 1 to 64, programs that it starts,
    /// too; with as many threads as well.
    #[arg(long, value_name = "N")]
    pub(crate) cpus: Option<usize>,
    /// Run only these variants, for experiments that have several.
    #[arg(long, value_name = "a,b,c", value_delimiter = ',')]
    pub(crate) variants: Vec<String>,
    /// Measure only rows with these parameters, for experiments that have many:
    /// `qdisc=fq,driver=null`. Several values of one are alternatives.
    #[arg(long, value_name = "name=value,...", value_delimiter = ',')]
    pub(crate) only: Vec<String>,
    /// Measure what goals are about, and nothing else.
    #[arg(long)]
    pub(crate) judged: bool,
    /// Measure the cells that are undecided in this result, and those that goals compare them with,
    /// in windows as long as its own; with `merge`: FILEs' figures take the place of its own there.
    #[arg(long, value_name = "RESULT", value_parser = Longer::read)]
    pub(crate) longer: Option<Arc<Longer>>,
    /// Measure one of the rounds, on a machine that is quiet, or has not become so in a minute.
    #[arg(long)]
    pub(crate) once: bool,
    /// Do not measure, but say how long that would take.
    #[arg(long)]
    pub(crate) plan: bool,
    /// With `report`: draw the results, too, as SVG files in this directory.
    #[arg(long, value_name = "DIR")]
    pub(crate) plot: Option<PathBuf>,
    /// Print one JSON object (for `all`: an array of them) instead of Markdown.
    #[arg(long)]
    pub(crate) json: bool,
}

impl Options {
    /// Checks that clap cannot make.
    pub(crate) fn check(&self) -> Result<(), BenchError> {
        if let Some(longer) = &self.longer {
            longer.check(&self.experiment, REVISION)?;
        }
        let problem = if !self.seconds.is_finite() || self.seconds <= 0.0 {
            "--seconds must be a positive number"
        } else if self.seconds > 3600.0 {
            "--seconds must be at most 3600"
        } else if self.rounds == 0 || self.rounds > 1000 {
            "--rounds must be from 1 to 1000"
        } else if self.threads.iter().any(|&n| n == 0 || n > 4096) {
            "--threads takes numbers from 1 to 4096"
        } else if self.cpus.is_some_and(|n| n == 0 || n > 64) {
            "--cpus must be from 1 to 64"
        } else if !self.reads() && (!self.files.is_empty() || self.plot.is_some()) {
            "a FILE and --plot are for `report`, `scoreboard` and `merge`"
        } else {
            return Ok(());
        };
        Err(BenchError::Usage(problem.to_owned()))
    }

    /// The same for one experiment.
    pub(crate) fn of(&self, experiment: &str) -> Options {
        Options {
            experiment: experiment.to_owned(),
            ..self.clone()
        }
    }

    /// True if it is about results that are there.
    fn reads(&self) -> bool {
        ["report", "scoreboard", "merge"].contains(&self.experiment.as_str())
    }

    /// The parameters and values that `--only` names.
    ///
    /// # Errors
    /// If a part of it has no `=`.
    pub(crate) fn only(&self) -> Result<Only, BenchError> {
        let pair = |text: &String| match text.split_once('=') {
            Some((name, value)) => Ok((name.to_owned(), value.to_owned())),
            None => Err(BenchError::Usage(format!(
                "--only takes name=value, not '{text}'"
            ))),
        };
        self.only
            .iter()
            .map(pair)
            .collect::<Result<_, _>>()
            .map(Only)
    }

    /// True if `--only` lets rows through whose parameter `name` is `value`: it does not name the
    /// parameter, or has this value of it.
    ///
    /// # Errors
    /// As [`only`](Options::only).
    pub(crate) fn includes(&self, name: &str, value: &str) -> Result<bool, BenchError> {
        let only = self.only()?.0;
        let mut values = only.iter().filter(|(n, _)| n == name).peekable();
        Ok(values.peek().is_none() || values.any(|(_, v)| v == value))
    }

    /// True if `--variants` leaves this one.
    pub(crate) fn wants(&self, variant: &str) -> bool {
        self.variants.is_empty() || self.variants.iter().any(|name| name == variant)
    }

    /// # Errors
    /// If `--variants` names one that is not `known`.
    pub(crate) fn check_variants(
        &self,
        experiment: &str,
        known: &[&str],
    ) -> Result<(), BenchError> {
        let unknown = |name: &&String| !known.contains(&name.as_str());
        match self.variants.iter().find(unknown) {
            Some(unknown) => {
                let mut known = known.to_vec();
                known.sort_unstable();
                known.dedup();
                let known = known.join(", ");
                Err(BenchError::Usage(format!(
                    "{experiment} has no variant '{unknown}'; there are: {known}"
                )))
            }
            None => Ok(()),
        }
    }

    /// The numbers of threads to measure with: `usual` ones and, in a short run, `few` of them,
    /// unless `--threads` names others. With `--cpus`, as many threads are among them.
    pub(crate) fn threads(&self, usual: &[usize], few: &[usize]) -> Vec<usize> {
        if !self.threads.is_empty() {
            return self.threads.clone();
        }
        let mut threads = if self.seconds < SHORT { few } else { usual }.to_vec();
        threads.extend(self.cpus);
        threads.sort_unstable();
        threads.dedup();
        threads
    }

    /// Turns of each variant.
    pub(crate) fn rounds(&self) -> Rounds {
        Rounds {
            count: if self.once { 1 } else { self.rounds },
            judged: self.judged.then(|| self.experiment.clone()),
            longer: self.longer.clone(),
            plan: self.plan,
            watch: self.seconds >= SHORT,
            short: self.seconds < SHORT,
            ..Rounds::default()
        }
    }

    /// Turns in which real programs run, and the time of each figure in one. They take long to
    /// start, so a short run is one turn.
    pub(crate) fn program_turns(&self) -> (Rounds, Duration) {
        let mut rounds = self.rounds();
        if self.seconds < SHORT {
            rounds.count = 1;
            return (rounds, Duration::from_secs_f64(self.seconds));
        }
        (rounds, self.window(1))
    }

    /// Time for one figure with so many threads in one round.
    pub(crate) fn window(&self, threads: usize) -> Duration {
        let longer = self.longer.as_ref();
        let rounds = longer.map_or(self.rounds, |longer| longer.rounds());
        let window = Duration::from_secs_f64(self.seconds / rounds as f64);
        if self.seconds < SHORT {
            // All threads are to have had the CPU.
            let least = Duration::from_millis(20).max(Duration::from_millis(2) * threads as u32);
            return (window / 10).max(least);
        }
        window.max(if threads < MANY {
            WINDOW
        } else {
            WINDOW_OF_MANY
        })
    }
}

/// The names and values of `--only`.
#[derive(Debug)]
pub(crate) struct Only(Vec<(String, String)>);

impl Only {
    /// True if rows with these parameters are asked for: for each name given, with one of its
    /// values. Rows without such a parameter are not.
    pub(crate) fn allows(&self, params: &[Param]) -> bool {
        let is = |name: &str, value: &str| {
            let same = |(n, v): &Param| *n == name && text(v) == value;
            params.iter().any(same)
        };
        self.0.iter().all(|(name, _)| {
            let mut values = self.0.iter().filter(|(n, _)| n == name);
            values.any(|(n, v)| is(n, v))
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use serde_json::json;

    use super::*;

    #[test]
    fn rows_are_chosen_by_their_parameters() {
        let only = |only: &str| {
            let options = Options::parse_from(["softnet-bench", "all", "--only", only]);
            let row = [("qdisc", json!("fq")), ("threads", json!(8))];
            options.only().map(|only| only.allows(&row)).ok()
        };
        assert_eq!(only("qdisc=fq"), Some(true));
        assert_eq!(only("qdisc=pfifo,qdisc=fq,threads=8"), Some(true));
        assert_eq!(only("qdisc=pfifo"), Some(false));
        assert_eq!(only("qdisc=fq,threads=2"), Some(false));
        assert_eq!(only("load=50%"), Some(false));
    }

    #[test]
    fn longer_rounds_have_the_windows_of_the_result() {
        let result = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../docs/results/tx-adopt.json"
        );
        let options = |more: &[&str]| {
            let always = ["softnet-bench", "tx-adopt"];
            Options::parse_from(always.iter().chain(more))
        };
        let first = options(&["--rounds", "7"]);
        let longer = options(&["--rounds", "15", "--longer", result]);
        assert_eq!(longer.window(1), first.window(1));
        assert_eq!(longer.rounds().count, 15);
    }

    #[test]
    fn only_leaves_out_other_values_of_what_it_names() {
        let options = |only: &str| {
            Options::try_parse_from(["softnet-bench", "all", "--only", only]).expect("it is valid")
        };
        let some = options("case=web,connections=16,connections=64");
        for (name, value, included) in [
            ("case", "web", true),
            ("case", "tap-rr", false),
            ("connections", "64", true),
            ("connections", "32", false),
            ("clients", "200", true),
        ] {
            assert_eq!(
                some.includes(name, value).ok(),
                Some(included),
                "{name}={value}"
            );
        }
        assert!(options("web").includes("case", "web").is_err());
    }
}
