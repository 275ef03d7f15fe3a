//! Failures of hosts, programs and measurements.

use std::io;

/// Why something could not be set up, run or measured.
#[derive(Debug, thiserror::Error)]
pub enum TestbedError {
    /// The user asks for what does not exist.
    #[error("{0}")]
    Usage(String),
    /// The machine lacks what it takes, such as a program.
    #[error("{0}")]
    Unavailable(String),
    /// A system call failed.
    #[error("{doing}")]
    Io {
        /// The purpose of the call.
        doing: String,
        /// The system's answer.
        source: io::Error,
    },
    /// A program failed or said what we do not understand.
    #[error("`{command}`: {problem}")]
    Command {
        /// The program with its arguments.
        command: String,
        /// The reason, as far as it is known.
        problem: String,
    },
    /// A network namespace could not be opened or entered.
    #[error(transparent)]
    Netns(#[from] softnet_io::NetnsError),
    /// The thing measured did not do its job.
    #[error("{0}")]
    Measure(String),
}

impl TestbedError {
    /// A failed system call.
    pub fn io(doing: impl Into<String>, source: impl Into<io::Error>) -> TestbedError {
        TestbedError::Io {
            doing: doing.into(),
            source: source.into(),
        }
    }

    /// A failed program.
    pub fn command(command: impl Into<String>, problem: impl Into<String>) -> TestbedError {
        TestbedError::Command {
            command: command.into(),
            problem: problem.into(),
        }
    }
}

/// An error and its causes in one line.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut line = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        line.push_str(&format!(": {error}"));
        cause = error.source();
    }
    line
}
