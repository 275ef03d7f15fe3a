//! Why the demo ends early.

use std::io;

use crate::failure::{Exit, Failure};

/// Why the demo ends early.
#[derive(Debug)]
pub(super) enum End {
    /// A signal asked for it.
    Interrupted,
    /// Something failed.
    Failed(Failure),
}

impl End {
    /// A failed system call.
    pub(super) fn io(what: &'static str) -> impl FnOnce(io::Error) -> End {
        move |error| End::Failed(Failure::because(Exit::Failure, what, &error))
    }
}
