//! Sending frames: descriptors of packets go to the transmit ring, and come back in the completion
//! ring when the kernel is done with the packets, which are then freed together.
//!
//! In copy mode the kernel sends in a system call, at most 32 frames each, so it is called as long
//! as it takes some; over a veth the stack of the other end runs in it, and the time of a batch is
//! bounded, as for a TAP device. Without a copy the interface's driver sends, and is called where
//! it asks for that. Either is done with frames at some later time: how many bytes it has meanwhile
//! is up to a [`Limit`].
//!
//! Data that is not the pool's, or that several packets share, is copied to a buffer of its own.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::xdp::{XdpDesc, XdpDescOptions};
use softnet::mem::{Packet, PacketList, Pool};
use softnet::stats::DropReason;
use softnet::time::Time;
use softnet::tx::{Interest, RingFile, RingWaker, Sent, TxRing, Xmit};

use super::device::{Device, RING};
use super::lent::{Area, Lent};
use super::limit::Limit;
use super::ring::{Consumer, Producer};
use super::{AfXdpLink, sys};
use crate::driver::down;

/// Time that the calls of one batch may take, as for a TAP device.
const LONGEST_BATCH: Duration = Duration::from_micros(200);
/// Bytes of an Ethernet header, and of a VLAN tag.
const HEADER: usize = 14;
const TAG: usize = 4;

/// One transmit queue of a port.
#[derive(Debug)]
pub struct AfXdpTx {
    tx: Producer<XdpDesc>,
    completion: Consumer<u64>,
    /// Packets that the kernel has; `None` once the queue is being dropped.
    lent: Option<Lent>,
    limit: Limit,
    pool: Pool,
    waker: Option<RingWaker>,
    queue: usize,
    link: Arc<AfXdpLink>,
    /// Tells when the socket is writable: a file of its own, so that no other keeps the socket
    /// open, and with it the kernel's hands on the pool.
    writable: OwnedFd,
    /// Behind the rings, whose memory keeps the sockets open.
    device: Arc<Device>,
}

/// Parts of a new transmit queue.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) tx: Producer<XdpDesc>,
    pub(super) completion: Consumer<u64>,
    pub(super) area: Area,
    pub(super) pool: Pool,
    pub(super) queue: usize,
    pub(super) link: Arc<AfXdpLink>,
    pub(super) device: Arc<Device>,
}

impl AfXdpTx {
    /// # Errors
    /// If the system has no descriptor left.
    pub(super) fn new(parts: Parts) -> Result<AfXdpTx, Errno> {
        let writable = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let socket = parts.device.socket(parts.queue);
        let events = epoll::EventFlags::OUT | epoll::EventFlags::ET;
        epoll::add(&writable, socket, epoll::EventData::new_u64(0), events)?;
        Ok(AfXdpTx {
            tx: parts.tx,
            completion: parts.completion,
            lent: Some(Lent::new(parts.area)),
            limit: Limit::new(),
            pool: parts.pool,
            waker: None,
            queue: parts.queue,
            link: parts.link,
            writable,
            device: parts.device,
        })
    }

    /// Packets that the kernel has.
    fn lent(&self) -> usize {
        self.lent.as_ref().map_or(0, Lent::len)
    }

    /// Frees what was completed, and returns its bytes.
    fn reap(&mut self) -> u64 {
        let mut done = PacketList::new();
        if let Some(lent) = &mut self.lent
            && lent.len() > 0
        {
            let completion = &mut self.completion;
            let places = std::iter::from_fn(|| completion.pop());
            done.extend(places.filter_map(|place| Some(lent.take_back(place)?.0)));
        }
        if !done.is_empty() {
            self.completion.release();
        }
        done.bytes()
    }

    /// Has the kernel send what waits in the ring, as long as it takes some.
    fn kick(&mut self) {
        let mut left = self.tx.waiting();
        if left == 0 || !self.tx.needs_wakeup() {
            return;
        }
        let start = Instant::now();
        loop {
            // EAGAIN: it took 32; or the interface, or the socket's share of memory, is full, of
            // which its file tells when it is over. Any other: it took nothing, which is seen, or
            // dropped a frame, which the interface counts.
            let _ = sys::send(self.device.socket(self.queue));
            let before = std::mem::replace(&mut left, self.tx.waiting());
            if left == 0 || left >= before || self.device.zero_copy {
                return;
            }
            if start.elapsed() >= LONGEST_BATCH
                && let Some(waker) = &self.waker
            {
                // Others have their turn first.
                waker.wake();
                return;
            }
        }
    }

    /// Puts a packet in the ring.
    fn put(&mut self, packet: Packet) -> Result<(), (DropReason, Packet)> {
        if packet.len() > longest(&packet, self.link.mtu()) {
            return Err((DropReason::TooLong, packet));
        }
        let Some(lent) = &mut self.lent else {
            return Err((DropReason::DeviceDown, packet));
        };
        let bytes = packet.len();
        let place = match lent.lend(packet) {
            Ok(place) => place,
            // Alone in a buffer of the pool there is no reason to refuse it.
            Err(packet) => lent
                .lend(copy(packet, &self.pool)?)
                .map_err(|copy| (DropReason::DriverRefused, copy))?,
        };
        self.tx.push(XdpDesc {
            addr: place,
            len: bytes as u32,
            options: XdpDescOptions::empty(),
        });
        self.limit.give(bytes as u64);
        Ok(())
    }
}

/// A copy of a packet in one buffer of its own.
fn copy(packet: Packet, pool: &Pool) -> Result<Packet, (DropReason, Packet)> {
    let Ok(mut copy) = pool.alloc() else {
        return Err((DropReason::NoBuffer, packet));
    };
    if packet.segments().all(|segment| copy.append(segment)) {
        Ok(copy)
    } else {
        Err((DropReason::TooLong, packet))
    }
}

/// Longest frame: one VLAN tag does not count, as for the kernel's own.
fn longest(packet: &Packet, mtu: u32) -> usize {
    let kind = packet.data().get(HEADER - 2..HEADER);
    let is_tag = matches!(kind, Some([0x81, 0] | [0x88, 0xa8]));
    mtu as usize + HEADER + if is_tag { TAG } else { 0 }
}

impl TxRing for AfXdpTx {
    fn xmit(&mut self, packets: &mut PacketList, sent: &mut Sent) -> Xmit {
        if !self.link.is_up() {
            // The kernel would send none.
            return down(packets, sent);
        }
        let mut refused = PacketList::new();
        while self.lent() < RING as usize
            && let Some(packet) = packets.pop_front()
        {
            let (wire_packets, bytes) = (packet.wire_packets(), packet.wire_len());
            match self.put(packet) {
                Ok(()) => {
                    sent.packets += wire_packets;
                    sent.bytes += bytes;
                }
                Err((reason, packet)) => {
                    sent.drop(reason, &packet);
                    refused.push_back(packet);
                }
            }
        }
        self.tx.submit();
        self.kick();
        let bytes = self.reap();
        self.limit.complete(bytes, None);
        if packets.is_empty() {
            return Xmit::Complete;
        }
        if self.device.zero_copy
            && let Some(waker) = &self.waker
        {
            // Nobody tells of completions.
            waker.wake();
        }
        Xmit::Busy
    }

    fn available(&mut self, now: Time) -> Option<u64> {
        if self.lent() > 0 {
            let bytes = self.reap();
            self.limit.complete(bytes, Some(now));
            // What was left there: by a call that was cut short, or an interface that was full.
            self.kick();
        }
        if !self.link.is_up() || self.lent() == 0 && self.limit.is_wide() {
            return None;
        }
        let available = match self.lent() < RING as usize {
            true => self.limit.available(),
            false => 0,
        };
        if available == 0
            && self.device.zero_copy
            && let Some(waker) = &self.waker
        {
            waker.wake();
        }
        Some(available)
    }

    fn restart(&mut self, now: Time) {
        let bytes = self.reap();
        self.limit.complete(bytes, Some(now));
        self.kick();
    }

    fn bind(&mut self, waker: RingWaker) {
        self.link.bind(self.queue, waker.clone());
        self.waker = Some(waker);
    }

    fn file(&self) -> io::Result<Option<RingFile>> {
        Ok(Some(RingFile {
            fd: self.writable.as_fd().try_clone_to_owned()?,
            interest: Interest::Readable,
        }))
    }
}

impl Drop for AfXdpTx {
    fn drop(&mut self) {
        if let Some(lent) = self.lent.take() {
            self.device.keep(lent);
        }
    }
}
