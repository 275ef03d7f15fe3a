//! Between receiving and sending: which port a packet leaves through.

mod bridge;
mod fdb;
mod forwarder;

pub use bridge::{Bridge, Verdict};
pub use fdb::{AGEING, Fdb};
pub use forwarder::{Forwarder, Tables};
