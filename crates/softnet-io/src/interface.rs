//! The interface behind a port that uses one which is there: whether it is up and has a carrier,
//! its MTU, and its speed.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};

use softnet_engine::LinkState;

use crate::link::LinkEvents;

/// An interface that is watched.
#[derive(Debug)]
pub(crate) struct Interface {
    index: u32,
    /// True while frames are delivered: [`state`](Interface::state) for transmit queues. Says
    /// nothing about other memory, so access is Relaxed, as with `gone`.
    up: AtomicBool,
    /// The interface was deleted, or moved to another namespace.
    gone: AtomicBool,
    events: LinkEvents,
}

impl Interface {
    pub(crate) fn new(index: u32, events: LinkEvents) -> Interface {
        Interface {
            index,
            up: AtomicBool::new(true),
            gone: AtomicBool::new(false),
            events,
        }
    }

    pub(crate) fn is_up(&self) -> bool {
        self.up.load(Ordering::Relaxed)
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }

    /// Speed of its medium in bytes per second, if it has one and that is known. Waits for the
    /// kernel's lock of all interfaces.
    pub(crate) fn speed(&self) -> Option<u64> {
        self.events.speed(self.index)
    }

    /// Readable when something changed.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.events.fd()
    }

    /// The state now. Consumes what made the file readable.
    pub(crate) fn state(&self) -> LinkState {
        // In this order: what changes later is reported again.
        self.events.drain();
        let state = match self.events.state(self.index) {
            Some(seen) => LinkState {
                up: seen.up && seen.running,
                mtu: seen.mtu,
                features: None,
            },
            None => {
                self.gone.store(true, Ordering::Relaxed);
                LinkState {
                    up: false,
                    ..LinkState::default()
                }
            }
        };
        self.up.store(state.up, Ordering::Relaxed);
        state
    }
}
