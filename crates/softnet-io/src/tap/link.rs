//! The network interface of a TAP device: whether it is up, its MTU, and what it dropped.
//!
//! The kernel reports changes on a netlink socket of the interface's namespace, which the worker
//! of the port's first queue watches. An interface that is moved to another namespace is no longer
//! followed: it counts as up, and a write tells if it is not.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use softnet_engine::{DeviceDrops, Link, LinkState};

use crate::link::{LinkChange, LinkEvents};
use crate::{LinkError, Links};

/// The interface of a TAP device, in whatever namespace it is.
#[derive(Debug)]
pub struct TapLink {
    index: u32,
    /// Whether the interface is up: [`state`](Link::state) for transmit queues. Says nothing about
    /// other memory, so access is Relaxed.
    up: AtomicBool,
    events: LinkEvents,
    latest: Mutex<Latest>,
}

#[derive(Debug)]
struct Latest {
    /// Of the device's namespace.
    links: Links,
    dropped: DeviceDrops,
    state: LinkState,
    /// The interface is where it was made.
    followed: bool,
}

impl TapLink {
    /// An interface of the calling thread's namespace.
    pub(super) fn new(mut links: Links, index: u32) -> Result<TapLink, LinkError> {
        // First, so that no change is missed.
        let events = LinkEvents::open()?;
        let state = links.state(index)?;
        Ok(TapLink {
            index,
            up: AtomicBool::new(state.up),
            events,
            latest: Mutex::new(Latest {
                links,
                dropped: DeviceDrops::default(),
                state,
                followed: true,
            }),
        })
    }

    pub(super) fn index(&self) -> u32 {
        self.index
    }

    pub(super) fn is_up(&self) -> bool {
        self.up.load(Ordering::Relaxed)
    }
}

impl Link for TapLink {
    /// What the kernel could not put on the full queue, and what it took
    /// and did not deliver, for instance while the interface was down.
    fn dropped(&self) -> DeviceDrops {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        if let Ok((rx, tx)) = latest.links.dropped(self.index) {
            // What the interface receives is what is sent here, and the other way round.
            latest.dropped = DeviceDrops { rx: tx, tx: rx };
        }
        latest.dropped
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.events.fd())
    }

    fn state(&self) -> LinkState {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(change) = self.events.next(self.index) {
            match change {
                LinkChange::State(state) if latest.followed => latest.state = state,
                LinkChange::Gone => {
                    latest.followed = false;
                    latest.state.up = true;
                }
                LinkChange::Lost if latest.followed => {
                    let now = latest.links.state(self.index);
                    latest.state = now.unwrap_or(latest.state);
                }
                LinkChange::State(_) | LinkChange::Lost => {}
            }
        }
        self.up.store(latest.state.up, Ordering::Relaxed);
        latest.state
    }
}
