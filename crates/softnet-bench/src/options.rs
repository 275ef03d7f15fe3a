//! The command line.

use std::time::Duration;

use crate::error::BenchError;

/// Measure Softnet beside what one would use instead.
#[derive(Debug, Clone, clap::Parser)]
#[command(version, about, after_help = crate::experiments::help())]
pub(crate) struct Options {
    /// The experiment to run, or `all`.
    pub(crate) experiment: String,
    /// Time for each figure of each variant, over all rounds, in seconds.
    #[arg(long, value_name = "N", default_value_t = 6.0)]
    pub(crate) seconds: f64,
    /// How often each variant takes its turn; default: one turn per 2 seconds, at most 5.
    #[arg(long, value_name = "N")]
    pub(crate) rounds: Option<usize>,
    /// Numbers of threads to measure with, for experiments that vary them.
    #[arg(long, value_name = "a,b,c", value_delimiter = ',')]
    pub(crate) threads: Vec<usize>,
    /// Run only these variants, for experiments that have several.
    #[arg(long, value_name = "a,b,c", value_delimiter = ',')]
    pub(crate) variants: Vec<String>,
    /// Measure only rows with these parameters, for experiments that have many: `qdisc=fq,driver=null`. Several values of one are
    /// alternatives.
    #[arg(long, value_name = "name=value,...", value_delimiter = ',')]
    pub(crate) only: Vec<String>,
    /// Print one JSON object (for `all`: an array of them) instead of tables.
    #[arg(long)]
    pub(crate) json: bool,
}

impl Options {
    /// What clap cannot check.
    pub(crate) fn check(&self) -> Result<(), BenchError> {
        let problem = if !self.seconds.is_finite() || self.seconds <= 0.0 {
            "--seconds must be a positive number"
        } else if self.seconds > 3600.0 {
            "--seconds must be at most 3600"
        } else if self.rounds.is_some_and(|n| n == 0 || n > 1000) {
            "--rounds must be from 1 to 1000"
        } else if self.threads.iter().any(|&n| n == 0 || n > 4096) {
            "--threads takes numbers from 1 to 4096"
        } else {
            return Ok(());
        };
        Err(BenchError::Usage(problem.to_owned()))
    }

    /// The names and values of `--only`.
    ///
    /// # Errors
    /// If one of them has no `=`.
    pub(crate) fn only(&self) -> Result<Vec<(String, String)>, BenchError> {
        let pair = |text: &String| match text.split_once('=') {
            Some((name, value)) => Ok((name.to_owned(), value.to_owned())),
            None => Err(BenchError::Usage(format!(
                "--only takes name=value, not '{text}'"
            ))),
        };
        self.only.iter().map(pair).collect()
    }

    /// Whether `--only` lets rows through whose parameter `name` is `value`: it does not name the parameter, or has this value of it.
    ///
    /// # Errors
    /// As [`only`](Options::only).
    pub(crate) fn includes(&self, name: &str, value: &str) -> Result<bool, BenchError> {
        let only = self.only()?;
        let mut values = only.iter().filter(|(n, _)| n == name).peekable();
        Ok(values.peek().is_none() || values.any(|(_, v)| v == value))
    }

    /// How often each variant takes its turn.
    pub(crate) fn rounds(&self) -> usize {
        self.rounds
            .unwrap_or_else(|| (self.seconds / 2.0).clamp(1.0, 5.0) as usize)
    }

    /// Time for one figure in one round.
    pub(crate) fn slice(&self) -> Duration {
        Duration::from_secs_f64(self.seconds / self.rounds() as f64)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

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
