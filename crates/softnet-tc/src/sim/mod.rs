//! A tree of qdiscs in virtual time: packets arrive when the caller says and leave when the tree
//! lets them. The same arrivals give the same departures, to the nanosecond, on every run.
//!
//! The [`Simulator`] does what a transmit queue and its worker do: it enqueues each arrival and
//! runs the queue; what is held back runs again at the time that the tree asked for. Behind the
//! tree is a link, which takes everything at once, or one packet after the other at a rate. It
//! reads no clock and starts no thread.

mod classes;
mod departures;
mod flow;
mod flows;
mod frame;
mod instances;
mod report;
mod shares;
mod simulator;
mod stories;
mod story;
pub mod tcp;
mod times;
mod windows;
mod world;

pub use flow::{Arrivals, Direction, Flow, FlowError, Pattern};
pub use flows::FlowReport;
pub use instances::Cpus;
pub use report::{ClassReport, Report};
pub use simulator::Simulator;
pub use story::{Fate, Look, Story};
pub use times::{Sojourn, Times};
pub use windows::Window;
pub use world::{Connection, World, jain};

use softnet::mem::Packet;
use softnet::wire::{FIXED_KEY, traffic_class};

use crate::account::LinkCost;

/// Link behind the tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SimLink {
    /// Bytes per second; `None` takes everything at once.
    pub rate: Option<u64>,
    /// Cost of a packet beyond its length.
    pub cost: LinkCost,
}

/// The same for all packets of a flow, and on every run.
fn flow_hash(packet: &Packet) -> u32 {
    let headers = packet.parse();
    headers.map_or(0, |headers| {
        headers.flow_hash_with(packet.data(), &FIXED_KEY)
    })
}

/// A packet has a congestion mark.
fn is_marked(packet: &Packet) -> bool {
    traffic_class(packet.data()).is_some_and(|class| class & 3 == 3)
}

#[cfg(all(test, not(any(loom, miri))))]
mod bounds_tests;
#[cfg(all(test, not(any(loom, miri))))]
mod tests;
