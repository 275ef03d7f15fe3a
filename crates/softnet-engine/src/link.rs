//! A port's link: whether it is up, its MTU, and what the device behind the driver drops.

use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Frames that a device dropped by itself, between its other side and the driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceDrops {
    /// Ingress: never received.
    pub rx: u64,
    /// Taken from the driver (or refused by an error that the driver has counted), and not
    /// delivered.
    pub tx: u64,
}

/// The state of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkState {
    /// Whether frames are delivered.
    pub up: bool,
    /// Longest IP packet in bytes, if the device tells.
    pub mtu: Option<u32>,
}

impl Default for LinkState {
    /// Up, with an MTU that is not known.
    fn default() -> Self {
        LinkState {
            up: true,
            mtu: None,
        }
    }
}

/// What a driver knows of its device besides packets.
pub trait Link: fmt::Debug + Send + Sync {
    /// What the device has dropped by itself; the latest known numbers if it is gone. May cost a
    /// system call. Asked by the control path.
    fn dropped(&self) -> DeviceDrops;

    /// What becomes readable when the state may have changed; `None` if it never does.
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// The state now. Consumes what made the file readable. Does not block: asked by a worker.
    fn state(&self) -> LinkState {
        LinkState::default()
    }
}

/// The state of a port's link as the packet path sees it. Written by the worker that watches the
/// link, read by all. The fields say nothing about other memory, so access is Relaxed.
#[derive(Debug)]
pub(crate) struct LinkCell {
    up: AtomicBool,
    /// 0: not known.
    mtu: AtomicU32,
}

impl LinkCell {
    pub(crate) fn new() -> LinkCell {
        LinkCell {
            up: AtomicBool::new(true),
            mtu: AtomicU32::new(0),
        }
    }

    pub(crate) fn is_up(&self) -> bool {
        self.up.load(Ordering::Relaxed)
    }

    pub(crate) fn get(&self) -> LinkState {
        let mtu = self.mtu.load(Ordering::Relaxed);
        LinkState {
            up: self.is_up(),
            mtu: (mtu != 0).then_some(mtu),
        }
    }

    /// Returns the state before.
    pub(crate) fn set(&self, state: LinkState) -> LinkState {
        let mtu = self.mtu.swap(state.mtu.unwrap_or(0), Ordering::Relaxed);
        LinkState {
            up: self.up.swap(state.up, Ordering::Relaxed),
            mtu: (mtu != 0).then_some(mtu),
        }
    }
}
