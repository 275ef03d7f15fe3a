//! What the network interface of a TAP device dropped.

use std::sync::{Mutex, PoisonError};

use softnet_engine::rx::{DeviceCounters, DeviceDrops};

use crate::Links;

/// The interface of a TAP device, in whatever namespace it is.
#[derive(Debug)]
pub struct TapLink(Mutex<State>);

#[derive(Debug)]
struct State {
    /// Of the device's namespace.
    links: Links,
    index: u32,
    /// The latest reading.
    dropped: DeviceDrops,
}

impl TapLink {
    pub(super) fn new(links: Links, index: u32) -> TapLink {
        TapLink(Mutex::new(State {
            links,
            index,
            dropped: DeviceDrops::default(),
        }))
    }
}

impl DeviceCounters for TapLink {
    /// What the kernel could not put on the full queue, and what it took
    /// and did not deliver, for instance while the interface was down.
    fn dropped(&self) -> DeviceDrops {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let index = state.index;
        if let Ok((rx, tx)) = state.links.dropped(index) {
            // What the interface receives is what is sent here, and the other way round.
            state.dropped = DeviceDrops { rx: tx, tx: rx };
        }
        state.dropped
    }
}
