//! Failures of a command: one readable line and an exit code.

use std::error::Error;
use std::fmt;
use std::process::ExitCode;

/// Exit codes of the program; `--help` lists them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// It could not go on.
    Failure = 1,
    /// The configuration or the command line asks for what cannot be had.
    Config = 2,
    /// `check --strict` found what is likely a mistake.
    Warnings = 3,
    /// `exec` could not prepare the program's environment.
    ExecFailed = 125,
    /// `exec` cannot run the program.
    CannotExecute = 126,
    /// `exec` did not find the program.
    NotFound = 127,
    /// Ctrl-C ended it before it was done.
    Interrupted = 130,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}

/// Why a command ended without success.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The program's exit code.
    pub exit: Exit,
    message: String,
}

impl Failure {
    /// A failure whose message stands for itself.
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Failure {
        Failure {
            exit,
            message: message.into(),
        }
    }

    /// A failure with the attempt, and its causes down to the first.
    pub(crate) fn because(exit: Exit, what: impl fmt::Display, why: &dyn Error) -> Failure {
        Failure {
            exit,
            message: format!("{what}: {}", chain(why)),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// An error and its causes in one line.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        // Some errors repeat their cause in their own text.
        if !text.ends_with(&next) {
            text.push_str(": ");
            text.push_str(&next);
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_are_named_once() {
        #[derive(Debug, thiserror::Error)]
        #[error("cannot open the port")]
        struct Outer(#[source] Middle);
        #[derive(Debug, thiserror::Error)]
        #[error("refused ({0})")]
        struct Middle(#[source] std::io::Error);
        let error = Outer(Middle(std::io::Error::other("no luck")));
        assert_eq!(
            chain(&error),
            "cannot open the port: refused (no luck): no luck"
        );
        let plain = std::io::Error::other(std::io::Error::other("same"));
        assert_eq!(chain(&plain), "same");
    }
}
