//! The network interface of a TAP device: whether it is up, its MTU, and what it dropped.
//!
//! The kernel reports changes on a netlink socket of the interface's namespace, which the worker
//! of the port's first queue watches. An interface that is moved to another namespace is no longer
//! followed until it comes back: it counts as up, and a write tells if it is not.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use softnet_engine::{DeviceDrops, Link, LinkState};

use crate::Links;
use crate::hand_off::{Continued, HandOff, copies};
use crate::link_events::{LinkEvents, Seen};

/// The interface of a TAP device, in whatever namespace it is.
#[derive(Debug)]
pub struct TapLink {
    index: u32,
    /// True while the interface is up: [`state`](Link::state) for transmit queues. Says nothing
    /// about other memory, so access is Relaxed.
    up: AtomicBool,
    events: LinkEvents,
    queues: Vec<Arc<OwnedFd>>,
    counters: Mutex<Counters>,
}

/// The socket for requests of the control path. A request may wait for others, so the worker stays
/// away.
#[derive(Debug)]
struct Counters {
    /// The links of the device's namespace.
    links: Links,
    dropped: DeviceDrops,
    /// Dropped while another process had the device.
    before: DeviceDrops,
}

impl TapLink {
    /// An interface of a namespace in which the sockets were opened.
    pub(super) fn new(
        (links, events): (Links, LinkEvents),
        index: u32,
        up: bool,
        queues: Vec<Arc<OwnedFd>>,
    ) -> TapLink {
        TapLink {
            index,
            up: AtomicBool::new(up),
            events,
            queues,
            counters: Mutex::new(Counters {
                links,
                dropped: DeviceDrops::default(),
                before: DeviceDrops::default(),
            }),
        }
    }

    /// Drops so far are none of this port's.
    pub(super) fn count_from_now(&self) {
        let lock = self.counters.lock();
        let mut counters = lock.unwrap_or_else(PoisonError::into_inner);
        if let Ok((rx, tx)) = counters.links.dropped(self.index) {
            counters.before = DeviceDrops { rx: tx, tx: rx };
        }
    }

    pub(super) fn is_up(&self) -> bool {
        self.up.load(Ordering::Relaxed)
    }
}

impl Continued for TapLink {
    fn hand_off(&self) -> io::Result<HandOff> {
        Ok(HandOff {
            files: copies(&self.queues)?,
            rest: Vec::new(),
        })
    }
}

impl Link for TapLink {
    /// Frames that the kernel could not put on the full queue, and frames that it took and did not
    /// deliver, for instance while the interface was down.
    fn dropped(&self) -> DeviceDrops {
        let lock = self.counters.lock();
        let mut counters = lock.unwrap_or_else(PoisonError::into_inner);
        if let Ok((rx, tx)) = counters.links.dropped(self.index) {
            // What the interface receives is what is sent here, and the other way round.
            counters.dropped = DeviceDrops {
                rx: tx.saturating_sub(counters.before.rx),
                tx: rx.saturating_sub(counters.before.tx),
            };
        }
        counters.dropped
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.events.fd())
    }

    fn state(&self) -> LinkState {
        // In this order: what changes later is reported again.
        self.events.drain();
        let (up, mtu) = match self.events.state(self.index) {
            Seen::Is(state) => (state.up, state.mtu),
            Seen::Renamed => (self.is_up(), None),
            // Moved to another namespace, where it is sent to all the same.
            Seen::Gone => (true, None),
        };
        let state = LinkState {
            up,
            mtu,
            features: None,
        };
        self.up.store(state.up, Ordering::Relaxed);
        state
    }
}
