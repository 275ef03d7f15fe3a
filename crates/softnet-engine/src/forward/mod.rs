//! Between receiving and sending: which port a packet leaves through.

mod fdb;
mod forwarder;
mod mirred;

pub use fdb::AGEING;
pub(crate) use fdb::Fdb;
pub use forwarder::{Bridge, Verdict};
pub(crate) use forwarder::{Entry, Forwarder, Members};
pub use mirred::{Actions, MIRRED_DEFER_LIMIT, MIRRED_NEST_LIMIT, Mirred, MirredDir, MirredMode};

#[cfg(all(test, not(miri)))]
mod mirred_tests;
