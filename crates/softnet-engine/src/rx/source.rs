//! The receiving half of a driver.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use crate::link::Link;
use softnet::mem::{Packet, PacketList, Pool};
use softnet::stats::{DropCounters, DropReason};
use softnet::time::Time;

/// Result of one poll of a receive queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Polled {
    /// More may be waiting: poll again. False: the queue was empty when last looked at.
    pub more: bool,
    /// The device behind the queue is gone for good; the queue must be closed.
    pub gone: bool,
    /// When an empty queue is polled next.
    pub next: NextPoll,
}

/// When an empty queue is polled next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NextPoll {
    /// When its file is readable. A queue without a file: in every round, so that its worker never
    /// sleeps.
    #[default]
    Armed,
    /// When packets are [seen](RxQueue::peek): it suppresses notifications until it is
    /// [armed](RxQueue::arm).
    Unarmed,
    /// At this time. For a queue without a file; [`Time::MAX`]: never.
    At(Time),
}

/// Where a poll puts what it receives. Packets are stamped and counted as they are pushed.
#[derive(Debug)]
pub struct Receive<'a> {
    /// Wire packets that are wanted: the driver stops when those it pushed and dropped are as
    /// many.
    pub budget: usize,
    /// The time of the poll.
    pub now: Time,
    /// The queue's own worker polls. False: another one polls once, while that one sleeps.
    pub by_owner: bool,
    port: u16,
    packets: &'a mut PacketList,
    drops: &'a DropCounters,
    /// Packets that were pushed.
    received: Count,
    /// Frames dead on arrival.
    dead: u64,
    /// Wire packets that were pushed and dropped again.
    refused: u64,
}

/// Wire packets and their bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    packets: u64,
    bytes: u64,
}

impl<'a> Receive<'a> {
    /// A poll by the queue's owner, which appends to `packets` and counts what it drops in `drops`.
    pub fn new(
        budget: usize,
        now: Time,
        packets: &'a mut PacketList,
        drops: &'a DropCounters,
    ) -> Receive<'a> {
        Receive {
            budget,
            now,
            by_owner: true,
            port: 0,
            packets,
            drops,
            received: Count::default(),
            dead: 0,
            refused: 0,
        }
    }

    /// The port that packets arrive at.
    pub(super) fn at_port(mut self, port: u16) -> Self {
        self.port = port;
        self
    }

    /// Takes a packet.
    #[inline]
    pub fn push(&mut self, mut packet: Packet) {
        packet.set_port(self.port);
        packet.set_timestamp(self.now);
        let (bytes, packets) = packet.wire();
        self.received.packets += packets;
        self.received.bytes += bytes;
        self.packets.push_back(packet);
    }

    /// Counts a frame that could not be turned into a packet: one that died on arrival. It counts
    /// as received and as dropped. A frame is one packet, as its metadata was not checked, or did
    /// not pass: what it claims to stand for must not enter any count.
    #[cold]
    pub fn drop(&mut self, reason: DropReason) {
        self.drops.add(reason, 1);
        self.dead += 1;
    }

    /// Packets that were pushed.
    pub fn packets(&self) -> &PacketList {
        self.packets
    }

    /// Drops what was pushed and `keep` refuses. It stays counted as received, bytes included.
    #[cold]
    pub fn retain(&mut self, reason: DropReason, mut keep: impl FnMut(&Packet) -> bool) {
        for packet in self.packets.take() {
            if keep(&packet) {
                self.packets.push_back(packet);
            } else {
                self.drops.lose(reason, Some(&packet));
                self.refused += packet.wire_packets();
            }
        }
    }

    /// Wire packets received, their bytes (those of frames dead on arrival excepted), and wire
    /// packets dropped.
    pub(super) fn sums(&self) -> (u64, u64, u64) {
        let Count { packets, bytes } = self.received;
        (packets + self.dead, bytes, self.dead + self.refused)
    }
}

impl Extend<Packet> for Receive<'_> {
    fn extend<T: IntoIterator<Item = Packet>>(&mut self, packets: T) {
        packets.into_iter().for_each(|packet| self.push(packet));
    }
}

/// One receive queue of a port. Owned and polled by one worker.
///
/// A queue with a file is polled when the file is readable, until it is empty. One whose packets
/// are in memory that it shares with the device suppresses notifications meanwhile: each poll by
/// its owner disarms it, and it says so ([`NextPoll::Unarmed`]). Once it is empty it is [looked
/// at](RxQueue::peek) in every round, and [armed](RxQueue::arm) before the worker sleeps, or, as
/// one of many, when it has been empty for a millisecond.
pub trait RxQueue: Send {
    /// Receives packets until they stand for `rx.budget` wire packets or more, without blocking.
    /// Packets come checked: offload metadata fits the frame (see
    /// [`VnetHeader`](softnet::wire::VnetHeader)), the length is at least an Ethernet header's,
    /// and the receive queue is recorded if the device has several. What does not pass is
    /// [dropped](Receive::drop), and uses budget too.
    ///
    /// A poll by another worker than the [owner](Receive::by_owner) must leave the queue armed and
    /// not consume the notification (an event that was reported, or is about to be): the owner
    /// sleeps, and the notification is all that wakes it.
    ///
    /// Where the owner's poll leaves an [unarmed](NextPoll::Unarmed) queue empty, the driver may
    /// tell its device of what it took by the next [look](RxQueue::peek), when the packets are on
    /// their way.
    fn poll(&mut self, rx: &mut Receive<'_>) -> Polled;

    /// Asks for notifications: from now on the file becomes readable when packets come. False:
    /// packets have come meanwhile, and the queue must be polled instead. Asked when the queue was
    /// empty and [unarmed](NextPoll::Unarmed).
    fn arm(&mut self) -> bool {
        true
    }

    /// True if packets wait in an [unarmed](NextPoll::Unarmed) queue. Asked after each poll that
    /// left it empty, and in every round from then on. No system call, but for one that such a
    /// poll left to it.
    fn peek(&mut self) -> bool {
        false
    }

    /// The pools that [`poll`](RxQueue::poll) takes buffers from. The worker that polls the queue
    /// is registered with them: it takes in what others freed to it there, and sends off what it
    /// freed for others before it sleeps. The engine's own pool need not be named. Asked by the
    /// control path.
    fn pools(&self) -> Vec<&Pool> {
        Vec::new()
    }

    /// Knowledge of the driver about its device. One of a port's queues tells. Asked by the
    /// control path.
    fn link(&self) -> Option<Arc<dyn Link>> {
        None
    }

    /// File that becomes readable when the queue has packets; `None` for a queue that must be
    /// polled.
    fn fd(&self) -> Option<BorrowedFd<'_>>;
}

#[cfg(test)]
mod tests {
    use softnet::mem::{Pool, PoolConfig};

    use super::*;

    /// A frame dropped after it was pushed was received whole; one dead on arrival has no bytes.
    #[test]
    fn retained_and_refused_packets_count_as_received_with_their_bytes() {
        let pool = Pool::new(PoolConfig {
            buffers: 8,
            buffer_size: 2048,
        })
        .expect("memory");
        let (mut out, drops) = (PacketList::new(), DropCounters::default());
        let mut rx = Receive::new(64, Time::ZERO, &mut out, &drops);
        for len in [60, 61, 62] {
            let mut packet = pool.alloc().expect("a buffer");
            assert!(packet.append(&[0; 62][..len]), "room");
            rx.push(packet);
        }
        rx.drop(DropReason::TooLong);
        rx.retain(DropReason::DeviceDown, |packet| packet.len() == 61);
        assert_eq!(rx.sums(), (4, 60 + 61 + 62, 3));
        assert_eq!(out.len(), 1);
        assert_eq!(
            drops.nonzero(),
            [(DropReason::TooLong, 1), (DropReason::DeviceDown, 2)]
        );
    }
}
