//! Refusals of changes of a tree: the kernel's errno and text, and what is wrong or helps.

use softnet_engine::EngineError;
use softnet_tc::{FilterError, SpecError, TreeError};

use crate::link;
use crate::nl::{Errno, Error};

/// Refusal of a change of a link's tree.
pub(crate) fn control(error: EngineError) -> Error {
    match error {
        EngineError::Qdisc(error) => spec(&error),
        other => link::refusal(other),
    }
}

/// Refusal of a tree.
fn spec(error: &SpecError) -> Error {
    let errno = match error {
        SpecError::OneQueue(_) => Errno::EOPNOTSUPP,
        SpecError::NoQueue { .. } => Errno::ENOENT,
        SpecError::Tree(error) => return tree(error),
        SpecError::Filter(error) => return filter(error),
        _ => Errno::EINVAL,
    };
    Error::new(errno).text(error.to_string())
}

/// Refusal of filters, whose errors have the kernel's text.
pub(super) fn filter(error: &FilterError) -> Error {
    Error::new(Errno(error.errno())).text(error.to_string())
}

fn tree(error: &TreeError) -> Error {
    let (errno, text) = match error {
        TreeError::InUse(_) => (
            Errno::EINVAL,
            "Cannot move an existing qdisc to a different parent",
        ),
        TreeError::NoHandle => (
            Errno::ENOSPC,
            "Maximum number of qdisc handles was exceeded",
        ),
        TreeError::NoQdisc(_) => (Errno::ENOENT, "Failed to find specified qdisc"),
        TreeError::NoClass(_) => (Errno::ENOENT, "Specified class not found"),
        TreeError::Exists(_) => (Errno::EEXIST, "Exclusivity flag on, cannot modify"),
        TreeError::TooDeep(_) => (Errno::E2BIG, "Qdisc hierarchy is too deep"),
        TreeError::Loop(_) => (Errno::ELOOP, "Qdisc parent/child loop detected"),
        // It starts with the kernel's text.
        TreeError::ClassInUse { .. } => return Error::new(Errno::EBUSY).text(error.to_string()),
        TreeError::ClassExists(_) => return Error::new(Errno::EEXIST).text(error.to_string()),
        TreeError::NoClasses(_) | TreeError::RootOnly(_) => {
            return Error::new(Errno::EOPNOTSUPP).text(error.to_string());
        }
        _ => return Error::invalid("").text(error.to_string()),
    };
    Error::new(errno).text(text).help(error)
}
