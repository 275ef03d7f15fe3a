//! Receiving frames: buffers wait in the fill ring, and come back in the receive ring with frames
//! in them.
//!
//! Each buffer that comes back is replaced by a new one. Where the pool has none, its frame is
//! dropped and it is posted again itself, so that the queue never runs out of buffers.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use rustix::net::xdp::XdpDesc;
use softnet::mem::{HEADROOM, Packet, PacketList, Pool, SHARED_INFO};
use softnet::stats::DropReason;
use softnet_engine::Link;
use softnet_engine::rx::{Polled, Receive, RxQueue};

use super::device::Device;
use super::lent::{Area, Lent};
use super::ring::{Consumer, Producer};
use super::{AfXdpLink, sys};

/// An Ethernet header.
const MIN_FRAME: usize = 14;
/// Buffers by which a queue that was opened with few grows in one poll.
const GROW: usize = 16;

/// One receive queue of a port.
#[derive(Debug)]
pub struct AfXdpRx {
    fill: Producer<u64>,
    rx: Consumer<XdpDesc>,
    /// Buffers that the kernel has; `None` once the queue is being dropped.
    lent: Option<Lent>,
    /// Buffers that it is to have.
    posted: usize,
    pool: Pool,
    /// Empty buffers.
    fresh: PacketList,
    /// The queue's number.
    queue: usize,
    /// The port has several.
    several: bool,
    /// The interface, in one queue of each port.
    link: Option<Arc<AfXdpLink>>,
    /// Behind the rings, whose memory keeps the sockets open.
    device: Arc<Device>,
}

/// Parts of a new receive queue.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) fill: Producer<u64>,
    pub(super) rx: Consumer<XdpDesc>,
    pub(super) area: Area,
    pub(super) pool: Pool,
    pub(super) queue: usize,
    pub(super) queues: usize,
    pub(super) posted: usize,
    pub(super) device: Arc<Device>,
}

impl AfXdpRx {
    /// A queue whose fill ring has as many buffers as the pool has left, up to `posted`.
    pub(super) fn new(parts: Parts) -> AfXdpRx {
        let mut rx = AfXdpRx {
            fill: parts.fill,
            rx: parts.rx,
            lent: Some(Lent::new(parts.area)),
            posted: parts.posted,
            pool: parts.pool,
            fresh: PacketList::new(),
            queue: parts.queue,
            several: parts.queues > 1,
            link: None,
            device: parts.device,
        };
        rx.pool.alloc_bulk(rx.posted, &mut rx.fresh);
        rx.grow();
        rx
    }

    pub(super) fn set_link(&mut self, link: Arc<AfXdpLink>) {
        self.link = Some(link);
    }

    /// Buffers that the kernel has.
    pub(super) fn posted(&self) -> usize {
        self.lent.as_ref().map_or(0, Lent::len)
    }

    /// Posts an empty packet. It is freed if it cannot be.
    fn post(&mut self, mut packet: Packet) {
        packet.reserve(HEADROOM);
        if let Some(lent) = &mut self.lent
            && let Ok(place) = lent.lend_empty(packet)
            && !self.fill.push(place)
        {
            // The ring has as many places as there are buffers.
            lent.take_back(place);
        }
    }

    /// Posts fresh buffers that are missing.
    fn grow(&mut self) {
        while self.posted() < self.posted
            && let Some(packet) = self.fresh.pop_front()
        {
            self.post(packet);
        }
        self.show();
    }

    /// Shows the kernel what was posted.
    fn show(&mut self) {
        self.fill.submit();
        if self.fill.needs_wakeup() {
            sys::receive(self.device.socket(self.queue));
        }
    }

    /// A frame that came back. `None`: it was dropped.
    fn take(&mut self, frame: XdpDesc, rx: &mut Receive<'_>) -> Option<Packet> {
        let taken = self.lent.as_mut()?.take_back(frame.addr);
        let Some((mut packet, at)) = taken else {
            // No buffer of ours; the kernel never says so.
            rx.drop(DropReason::DriverRefused);
            return None;
        };
        let len = frame.len as usize;
        let reason = if frame.options.bits() != 0 {
            // The beginning of a frame that goes on in other buffers.
            DropReason::TooLong
        } else if len < MIN_FRAME {
            DropReason::Runt
        } else if let Some(fresh) = self.fresh.pop_front() {
            let start = at.checked_sub(SHARED_INFO);
            if let Some(start) = start {
                packet.reserve(start);
            }
            if start.is_some() && len <= packet.tailroom_mut().len() {
                packet.extend(len);
                if self.several {
                    packet.set_queue(u16::try_from(self.queue).ok());
                }
                self.post(fresh);
                return Some(packet);
            }
            self.fresh.push_front(fresh);
            DropReason::TooLong
        } else {
            DropReason::NoBuffer
        };
        rx.drop(reason);
        self.post(packet);
        None
    }
}

impl RxQueue for AfXdpRx {
    fn poll(&mut self, rx: &mut Receive<'_>) -> Polled {
        let budget = u32::try_from(rx.budget).unwrap_or(u32::MAX);
        let frames = self.rx.waiting(budget).min(budget) as usize;
        let missing = self.posted.saturating_sub(self.posted()).min(GROW);
        let wanted = (frames + missing).saturating_sub(self.fresh.len());
        if wanted > 0 {
            self.pool.alloc_bulk(wanted, &mut self.fresh);
        }
        for _ in 0..frames {
            let Some(frame) = self.rx.pop() else { break };
            if let Some(packet) = self.take(frame, rx) {
                rx.push(packet);
            }
        }
        if frames > 0 {
            self.rx.release();
        }
        if frames + missing > 0 {
            self.grow();
        }
        Polled {
            more: self.rx.waiting(1) > 0,
            ..Polled::default()
        }
    }

    fn pools(&self) -> Vec<&Pool> {
        vec![&self.pool]
    }

    fn link(&self) -> Option<Arc<dyn Link>> {
        Some(self.link.clone()?)
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.device.socket(self.queue))
    }
}

impl Drop for AfXdpRx {
    fn drop(&mut self) {
        if let Some(lent) = self.lent.take() {
            self.device.keep(lent);
        }
    }
}
