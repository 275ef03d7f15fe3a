//! The interface behind a port: whether it is up and has a carrier, its MTU, and what the sockets
//! had to drop.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use softnet_engine::{DeviceDrops, Link, LinkState};

use super::sys;
use crate::handover::{Continued, Handover, copies};
use crate::link::LinkEvents;

/// The interface of a port.
#[derive(Debug)]
pub struct AfPacketLink {
    index: u32,
    /// True while frames are delivered: [`state`](Link::state) for transmit queues. Says nothing
    /// about other memory, so access is Relaxed, as with `gone`.
    up: AtomicBool,
    /// The interface was deleted, or moved to another namespace.
    gone: AtomicBool,
    events: LinkEvents,
    sockets: Vec<Arc<OwnedFd>>,
    /// Drops so far: the kernel's counters start anew whenever they are read.
    dropped: Mutex<u64>,
}

impl AfPacketLink {
    pub(super) fn new(index: u32, events: LinkEvents, sockets: Vec<Arc<OwnedFd>>) -> AfPacketLink {
        let link = AfPacketLink {
            index,
            up: AtomicBool::new(true),
            gone: AtomicBool::new(false),
            events,
            sockets,
            dropped: Mutex::new(0),
        };
        link.state();
        link
    }

    pub(super) fn is_up(&self) -> bool {
        self.up.load(Ordering::Relaxed)
    }
}

impl Continued for AfPacketLink {
    fn hand_over(&self) -> io::Result<Handover> {
        Ok(Handover {
            files: copies(&self.sockets)?,
            rest: Vec::new(),
        })
    }
}

impl Link for AfPacketLink {
    /// Frames for which the sockets' receive buffers had no room. What the interface dropped by
    /// itself is the host's to count.
    fn dropped(&self) -> DeviceDrops {
        let lock = self.dropped.lock();
        let mut dropped = lock.unwrap_or_else(PoisonError::into_inner);
        for socket in &self.sockets {
            *dropped += u64::from(sys::take_drops(socket.as_fd()).unwrap_or(0));
        }
        DeviceDrops {
            rx: *dropped,
            tx: 0,
        }
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.events.fd())
    }

    fn state(&self) -> LinkState {
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

    fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }
}
