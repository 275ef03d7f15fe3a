//! Older designs that Softnet is compared with.

pub(crate) mod busylock;
#[allow(
    unsafe_code,
    reason = "it hands out the buffers of one block of memory"
)]
pub(crate) mod depot;
mod linux;
pub(crate) mod mutex;
pub(crate) mod rings;
pub(crate) mod snapshot;
pub(crate) mod spin_adopt;
#[allow(unsafe_code, reason = "a lock promises that one holds it at a time")]
mod ticket;
