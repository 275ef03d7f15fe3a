//! The interface behind a port, and what it and the sockets had to drop.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError, Weak};

use rustix::net::sockopt;
use softnet::tx::RingWaker;
use softnet_engine::{DeviceDrops, Link, LinkState};

use super::MAX_MTU;
use super::device::Device;
use crate::interface::Interface;

/// The interface of a port.
#[derive(Debug)]
pub struct AfXdpLink {
    interface: Interface,
    /// Longest IP packet in bytes, for transmit queues. Relaxed, as it says nothing about other
    /// memory.
    mtu: AtomicU32,
    /// Not kept: its closing waits for nobody who looks at it.
    device: Weak<Device>,
    /// Latest known numbers.
    dropped: Mutex<DeviceDrops>,
    status: String,
    /// Wakers of the transmit queues, by number.
    wakers: Mutex<BTreeMap<usize, RingWaker>>,
}

impl AfXdpLink {
    pub(super) fn new(interface: Interface, device: Weak<Device>, status: String) -> AfXdpLink {
        let link = AfXdpLink {
            interface,
            mtu: AtomicU32::new(MAX_MTU),
            device,
            dropped: Mutex::default(),
            status,
            wakers: Mutex::default(),
        };
        link.state();
        link
    }

    pub(super) fn is_up(&self) -> bool {
        self.interface.is_up()
    }

    /// Wakes a transmit queue whenever the link goes up or down: what waits for completions, which
    /// do not come while it is down, is dropped then, or sent.
    pub(super) fn bind(&self, queue: usize, waker: RingWaker) {
        let wakers = self.wakers.lock();
        let mut wakers = wakers.unwrap_or_else(PoisonError::into_inner);
        wakers.insert(queue, waker);
    }

    pub(super) fn mtu(&self) -> u32 {
        self.mtu.load(Ordering::Relaxed)
    }
}

impl Link for AfXdpLink {
    /// Frames that found no buffer or no place in a ring, and descriptors that the kernel did not
    /// take. What the interface dropped by itself is the host's to count.
    fn dropped(&self) -> DeviceDrops {
        let lock = self.dropped.lock();
        let mut dropped = lock.unwrap_or_else(PoisonError::into_inner);
        if let Some(device) = self.device.upgrade() {
            let mut sum = DeviceDrops::default();
            for socket in device.sockets() {
                if let Ok(counts) = sockopt::xdp_statistics(socket.as_fd()) {
                    sum.rx += counts.rx_dropped + counts.rx_ring_full.unwrap_or(0);
                    sum.tx += counts.tx_invalid_descs;
                }
            }
            *dropped = sum;
        }
        *dropped
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.interface.fd())
    }

    fn status(&self) -> Option<String> {
        Some(self.status.clone())
    }

    fn speed(&self) -> Option<u64> {
        self.interface.speed()
    }

    fn may_have_another_speed(&self) -> bool {
        self.interface.may_have_another_speed()
    }

    fn state(&self) -> LinkState {
        let was_up = self.is_up();
        let mut state = self.interface.state();
        if let Some(mtu) = &mut state.mtu {
            *mtu = (*mtu).min(MAX_MTU);
            self.mtu.store(*mtu, Ordering::Relaxed);
        }
        if state.up != was_up {
            let wakers = self.wakers.lock();
            let wakers = wakers.unwrap_or_else(PoisonError::into_inner);
            wakers.values().for_each(RingWaker::wake);
        }
        state
    }

    fn is_gone(&self) -> bool {
        self.interface.is_gone()
    }
}
