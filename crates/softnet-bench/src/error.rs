//! Why an experiment, or one variant of it, could not be measured.

use std::io;

#[derive(Debug, thiserror::Error)]
pub(crate) enum BenchError {
    /// The command line asks for what does not exist.
    #[error("{0}")]
    Usage(String),
    /// A program that a variant needs is not on this machine; the report carries a row with the
    /// reason.
    #[error("{0}")]
    Unavailable(String),
    /// A system call failed.
    #[error("{doing}")]
    Io { doing: String, source: io::Error },
    /// A program failed or said what we do not understand.
    #[error("`{command}`: {problem}")]
    Command { command: String, problem: String },
    /// A network namespace could not be opened or entered.
    #[error(transparent)]
    Netns(#[from] softnet_io::NetnsError),
    /// The thing measured did not do its job.
    #[error("{0}")]
    Measure(String),
}

impl BenchError {
    pub(crate) fn io(doing: impl Into<String>, source: impl Into<io::Error>) -> BenchError {
        BenchError::Io {
            doing: doing.into(),
            source: source.into(),
        }
    }

    pub(crate) fn command(command: impl Into<String>, problem: impl Into<String>) -> BenchError {
        BenchError::Command {
            command: command.into(),
            problem: problem.into(),
        }
    }
}

/// An error and its causes in one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut line = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        line.push_str(&format!(": {error}"));
        cause = error.source();
    }
    line
}
