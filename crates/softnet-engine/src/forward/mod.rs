//! Between receiving and sending: which port a packet leaves through.

mod bridge;
mod fdb;
mod forwarder;
mod mirred;

pub use bridge::{Bridge, Verdict};
pub use fdb::{AGEING, Fdb};
pub(crate) use forwarder::{Entry, Forwarder, Members, Tables};
pub use mirred::{Actions, MIRRED_DEFER_LIMIT, MIRRED_NEST_LIMIT, Mirred, MirredDir, MirredMode};

#[cfg(all(test, not(miri)))]
mod mirred_tests;
