//! The interface behind a port, and what the sockets had to drop.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use softnet_engine::{DeviceDrops, Link, LinkState};

use super::sys;
use crate::hand_off::{Continued, HandOff, copies};
use crate::interface::Interface;
use crate::link_events::LinkEvents;

/// The interface of a port.
#[derive(Debug)]
pub struct AfPacketLink {
    interface: Interface,
    sockets: Vec<Arc<OwnedFd>>,
    /// Drops so far: the kernel's counters start anew whenever they are read.
    dropped: Mutex<u64>,
}

impl AfPacketLink {
    pub(super) fn new(index: u32, events: LinkEvents, sockets: Vec<Arc<OwnedFd>>) -> AfPacketLink {
        let link = AfPacketLink {
            interface: Interface::new(index, events),
            sockets,
            dropped: Mutex::new(0),
        };
        link.state();
        link
    }

    pub(super) fn is_up(&self) -> bool {
        self.interface.is_up()
    }
}

impl Continued for AfPacketLink {
    fn hand_off(&self) -> io::Result<HandOff> {
        Ok(HandOff {
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
        Some(self.interface.fd())
    }

    fn speed(&self) -> Option<u64> {
        self.interface.speed()
    }

    fn may_have_another_speed(&self) -> bool {
        self.interface.may_have_another_speed()
    }

    fn state(&self) -> LinkState {
        self.interface.state()
    }

    fn is_gone(&self) -> bool {
        self.interface.is_gone()
    }
}
