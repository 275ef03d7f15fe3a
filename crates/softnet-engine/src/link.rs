//! A port's link: whether it is up, its MTU, and what the device behind the driver drops.

use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use softnet::tx::Features;

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
    /// Frames are delivered.
    pub up: bool,
    /// Longest IP packet in bytes, if the device tells.
    pub mtu: Option<u32>,
    /// Offloads of the driver, if they depend on who is connected; their MTU is not looked
    /// at.
    pub features: Option<Features>,
}

impl Default for LinkState {
    /// Up, with an MTU that is not known.
    fn default() -> Self {
        LinkState {
            up: true,
            mtu: None,
            features: None,
        }
    }
}

/// Knowledge of a driver about its device, besides packets.
pub trait Link: fmt::Debug + Send + Sync {
    /// Drops by the device itself; the latest known numbers if it is gone. May cost a
    /// system call. Asked by the control path.
    fn dropped(&self) -> DeviceDrops;

    /// File that becomes readable when the state may have changed; `None` if it never does.
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// For people: who is connected and what was agreed on, or why nobody is. Asked by the control
    /// path.
    fn status(&self) -> Option<String> {
        None
    }

    /// Speed of the device's medium in bytes per second, if it has one and that is known. May wait
    /// for the kernel: asked by the control path.
    fn speed(&self) -> Option<u64> {
        None
    }

    /// False if nothing was reported since [`speed`](Link::speed) was asked and known. Asked by the
    /// control path, which asks for the speed without a report only now and then.
    fn may_have_another_speed(&self) -> bool {
        true
    }

    /// The port's longest IP packet from now on, in bytes: a driver may drop what is longer before
    /// it costs anything. Called by the control path.
    fn set_mtu(&self, _mtu: u32) {}

    /// The state now. Consumes what made the file readable. Does not block: asked by a worker.
    fn state(&self) -> LinkState {
        LinkState::default()
    }

    /// The device is gone for good, as [`Polled::gone`](crate::rx::Polled) says where a receive
    /// queue can tell. Asked by a worker, after the state.
    fn is_gone(&self) -> bool {
        false
    }
}

/// The state of a port's link. Written by the worker that watches the link, read by all.
#[derive(Debug)]
pub(crate) struct LinkCell {
    /// Answer to the packet path. It says nothing about other memory, so access is Relaxed.
    up: AtomicBool,
    state: Mutex<LinkState>,
}

impl LinkCell {
    pub(crate) fn new() -> LinkCell {
        LinkCell {
            up: AtomicBool::new(true),
            state: Mutex::default(),
        }
    }

    pub(crate) fn is_up(&self) -> bool {
        self.up.load(Ordering::Relaxed)
    }

    pub(crate) fn get(&self) -> LinkState {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the state before.
    pub(crate) fn set(&self, state: LinkState) -> LinkState {
        let mut cell = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        self.up.store(state.up, Ordering::Relaxed);
        std::mem::replace(&mut cell, state)
    }
}
