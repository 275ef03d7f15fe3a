//! `pfifo_fast` in the shared-reference form (the kernel's `TCQ_F_NOLOCK`): any thread enqueues by `&self`, one runner at a time dequeues.
//!
//! Three [rings](PacketRing), one for each band. A sender's packets are in, or refused, when [`enqueue`](PfifoFastRings::enqueue) returns; it
//! then has to claim the run of its queue or to leave MISSED there. What was counted where: packets and bytes that left by the runner, bytes
//! that came and drops by senders, each in its own shard. So the backlog is a difference of sums: exact at rest (INV-PF-4), and a reader never
//! stops anybody.
//!
//! INV-PF-1 strict priority: a dequeue serves the lowest band that has a packet published; a hole that a preempted sender left in a band is passed, not
//! waited for. INV-PF-2: a band's order is that of its ring. INV-PF-3: each band holds exactly `limit` frames, others are not affected; unlike in
//! the kernel no slot comes back late (G7).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::pfifo_fast::PRIO_TO_BAND;
use super::{Next, Qdisc, QdiscStats};
use crate::packet::{Packet, PacketList, PacketRing, PacketRingConsumer, Produced};
use crate::stats::{DropReason, Dropped};
use crate::sync::{MAX_LIMIT, PerCpu};
use crate::time::Time;

/// Wire bytes that came.
const BYTES: usize = 0;
/// Wire packets that came, less frames: large frames stand for several packets.
const EXTRA: usize = 1;
/// Frames refused.
const DROPS: usize = 2;

fn band(packet: &Packet) -> usize {
    // The mask keeps a priority above 15 in range (BUG-PF-8).
    usize::from(PRIO_TO_BAND[(packet.priority() & 15) as usize])
}

/// What senders share.
#[derive(Debug)]
pub struct PfifoFastRings {
    bands: [PacketRing; 3],
    count: PerCpu<3>,
    /// Frames refused before the rings were opened last.
    past_drops: AtomicU64,
}

/// What an enqueue did not take.
#[derive(Debug, Default)]
pub struct Refused {
    /// The bands' limit was reached.
    pub full: PacketList,
    /// The discipline is being taken away.
    pub closed: PacketList,
}

impl PfifoFastRings {
    /// Takes all packets that fit, in order within each band. Any thread; never waits. Returns what it did not take; of that, `full` is counted as dropped.
    ///
    /// Afterwards the caller must claim the run of the queue or make its runner go round again.
    #[inline]
    pub fn enqueue(&self, mut packets: PacketList) -> Option<Refused> {
        let first = band(packets.front()?);
        // Counted before they are produced: afterwards they are no longer ours (BUG-PF-1).
        if packets.len() == 1 || packets.iter().all(|packet| band(packet) == first) {
            return self.produce(first, packets);
        }
        let mut lists = [const { PacketList::new() }; 3];
        while let Some(packet) = packets.pop_front() {
            lists[band(&packet)].push_back(packet);
        }
        let mut all: Option<Refused> = None;
        for (band, list) in lists.into_iter().enumerate() {
            if let Some(mut refused) = self.produce(band, list) {
                let all = all.get_or_insert_default();
                all.full.append(&mut refused.full);
                all.closed.append(&mut refused.closed);
            }
        }
        all
    }

    #[inline]
    fn produce(&self, band: usize, packets: PacketList) -> Option<Refused> {
        let (mut bytes, mut extra) = sizes(&packets);
        let refused = match self.bands[band].produce(packets) {
            Produced::All => None,
            Produced::Refused(full) => {
                self.count.add(DROPS, full.len() as u64);
                Some(Refused {
                    full,
                    ..Refused::default()
                })
            }
            Produced::Closed(closed) => Some(Refused {
                closed,
                ..Refused::default()
            }),
        };
        if let Some(refused) = &refused {
            for list in [&refused.full, &refused.closed] {
                let (b, e) = sizes(list);
                bytes -= b;
                extra -= e;
            }
        }
        self.came(bytes, extra);
        refused
    }

    #[inline]
    fn came(&self, bytes: u64, extra: u64) {
        if bytes != 0 {
            self.count.add(BYTES, bytes);
        }
        if extra != 0 {
            self.count.add(EXTRA, extra);
        }
    }

    /// Frames queued. A recent value while threads send.
    pub fn len(&self) -> usize {
        self.bands.iter().map(PacketRing::len).sum()
    }

    /// Whether nothing is queued, nor about to be.
    pub fn is_empty(&self) -> bool {
        self.bands.iter().all(PacketRing::is_empty)
    }

    /// Whether senders may use them: the discipline is the queue's.
    pub fn is_open(&self) -> bool {
        self.bands[2].is_open()
    }

    /// Adds what senders know to the [runner's part](PfifoFastLockless::left) of the numbers.
    pub(crate) fn complete(&self, stats: &mut QdiscStats) {
        // Modulo 2^64, as all of this (INV-PF-4). While threads send, a packet may be seen to leave before it came.
        let positive = |sum: u64| u64::try_from(sum as i64).unwrap_or(0);
        let drops = self.count.sum(DROPS);
        stats.drops += drops.wrapping_sub(self.past_drops.load(Ordering::Relaxed));
        let frames = self.len() as u64;
        stats.qlen += frames;
        stats.backlog = positive(stats.backlog.wrapping_add(self.count.sum(BYTES)));
        let extra = stats.queued.wrapping_add(self.count.sum(EXTRA));
        stats.queued = positive(extra.wrapping_add(frames));
    }
}

/// Wire bytes, and wire packets beyond frames.
#[inline]
fn sizes(packets: &PacketList) -> (u64, u64) {
    let mut sizes = (0, 0);
    for packet in packets {
        sizes.0 += packet.wire_len();
        sizes.1 += packet.wire_packets().saturating_sub(1);
    }
    sizes
}

/// The runner's side: used by one thread at a time, whoever runs the queue.
#[derive(Debug)]
pub struct PfifoFastLockless {
    bands: [PacketRingConsumer; 3],
    rings: Arc<PfifoFastRings>,
    /// `bytes` and `packets` that left.
    sent: QdiscStats,
    /// Wire bytes that left the rings in any way, and wire packets beyond frames.
    gone: (u64, u64),
    /// The last dequeue found nothing more. Then whatever is in the rings was put there by senders whose calls have not returned, or who made the runner go
    /// round again (the kernel's test by MISSED and DRAINING alone).
    drained: bool,
    /// Of each band, as the runner set it.
    limit: u32,
}

impl PfifoFastLockless {
    /// Empty and [closed](PfifoFastLockless::close), and small.
    pub fn closed() -> Option<PfifoFastLockless> {
        let (a, mut x) = PacketRing::new(0)?;
        let (b, mut y) = PacketRing::new(0)?;
        let (c, mut z) = PacketRing::new(0)?;
        for band in [&mut x, &mut y, &mut z] {
            drop(band.close());
        }
        let rings = PfifoFastRings {
            bands: [a, b, c],
            count: PerCpu::new(),
            past_drops: AtomicU64::new(0),
        };
        Some(PfifoFastLockless {
            bands: [x, y, z],
            rings: Arc::new(rings),
            sent: QdiscStats::default(),
            gone: (0, 0),
            drained: true,
            limit: 0,
        })
    }

    /// Empty and open, with room for `limit` frames in each band (the device's `txqueuelen`). `None` if `limit` is above [`MAX_LIMIT`]: then the
    /// [plain form](super::PfifoFast) has to do.
    pub fn new(limit: u32) -> Option<PfifoFastLockless> {
        let mut closed = PfifoFastLockless::closed()?;
        closed
            .open(limit, PacketList::new(), &mut Dropped::new())
            .then_some(closed)
    }

    /// Opens the rings, with `first` in them, before all that senders put in. What of it does not fit is dropped. The numbers start from 0. False, and
    /// nothing changed, if `limit` is above [`MAX_LIMIT`].
    pub fn open(&mut self, limit: u32, first: PacketList, dropped: &mut Dropped) -> bool {
        if limit > MAX_LIMIT {
            return false;
        }
        self.sent = QdiscStats::default();
        let past = self.rings.count.sum(DROPS);
        self.rings.past_drops.store(past, Ordering::Relaxed);
        let mut lists = [const { PacketList::new() }; 3];
        for packet in first {
            lists[band(&packet)].push_back(packet);
        }
        (self.drained, self.limit) = (false, limit);
        for (band, list) in self.bands.iter_mut().zip(lists) {
            let came = sizes(&list);
            let surplus = band.open(limit, list);
            self.rings.came(came.0, came.1);
            gone(&mut self.gone, &self.rings, surplus, dropped);
        }
        true
    }

    /// Adds packets that go before all that senders have put in, behind those that came with [`open`](PfifoFastLockless::open) or this before. What does not
    /// fit is dropped.
    pub fn put_first(&mut self, packets: PacketList, dropped: &mut Dropped) {
        self.drained = false;
        for packet in packets {
            let came = (packet.wire_len(), packet.wire_packets().saturating_sub(1));
            self.rings.came(came.0, came.1);
            let surplus = self.bands[band(&packet)].put_first(packet.into());
            gone(&mut self.gone, &self.rings, surplus, dropped);
        }
    }

    /// Forgets that nothing was queued. Every run but one that only [bypasses](Qdisc::bypass) begins with this: a sender that has put packets in has it begin or go
    /// round again, and it may end before it looks (the driver is full, the quota used up).
    #[inline]
    pub fn look_again(&mut self) {
        self.drained = false;
    }

    /// What senders share.
    pub fn rings(&self) -> &Arc<PfifoFastRings> {
        &self.rings
    }

    /// Whether nothing is queued, nor about to be: a packet sent now overtakes none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.bands.iter().all(PacketRingConsumer::is_empty)
    }

    /// Changes the limit of each band while senders go on (`txqueuelen`). What does not fit any more, the newest of each band, is dropped and
    /// counted. False, and nothing changed, if `limit` is above [`MAX_LIMIT`].
    pub fn resize(&mut self, limit: u32, dropped: &mut Dropped) -> bool {
        if limit > MAX_LIMIT {
            return false;
        }
        (self.drained, self.limit) = (false, limit);
        for band in &mut self.bands {
            let surplus = band.resize(limit);
            gone(&mut self.gone, &self.rings, surplus, dropped);
        }
        true
    }

    /// Closes the rings: senders get their packets back from now on. What is queued goes to `out`, in the order in which it would have left.
    pub fn close(&mut self, out: &mut PacketList) {
        for band in &mut self.bands {
            let mut rest = band.close();
            let (bytes, extra) = sizes(&rest);
            self.gone.0 += bytes;
            self.gone.1 += extra;
            out.append(&mut rest);
        }
    }

    fn bypass_several(&self, packets: &PacketList) -> bool {
        let first = packets.front().map(band);
        packets.iter().all(|packet| Some(band(packet)) == first)
    }

    /// The runner's part of the numbers; [`PfifoFastRings::complete`] does the rest.
    pub(crate) fn left(&self) -> QdiscStats {
        QdiscStats {
            backlog: 0_u64.wrapping_sub(self.gone.0),
            queued: 0_u64.wrapping_sub(self.gone.1),
            ..self.sent
        }
    }
}

/// Drops what a band of this length has no room for.
fn gone(gone: &mut (u64, u64), rings: &PfifoFastRings, surplus: PacketList, dropped: &mut Dropped) {
    if surplus.is_empty() {
        return;
    }
    let (bytes, extra) = sizes(&surplus);
    gone.0 += bytes;
    gone.1 += extra;
    rings.count.add(DROPS, surplus.len() as u64);
    dropped.append(surplus, DropReason::QdiscLimit);
}

impl Qdisc for PfifoFastLockless {
    /// As [`PfifoFastRings::enqueue`], for the runner itself. Packets refused by closed rings are dropped as
    /// [`QdiscReset`](DropReason::QdiscReset).
    fn enqueue(&mut self, packets: &mut PacketList, _now: Time, dropped: &mut Dropped) {
        self.drained = false;
        if let Some(refused) = self.rings.enqueue(packets.take()) {
            dropped.append(refused.full, DropReason::QdiscLimit);
            dropped.append(refused.closed, DropReason::QdiscReset);
        }
    }

    /// Packets of one band, so that none passes another, while nothing is queued that a sender may rely on (BUG-TX-8: looked at by the one who has the
    /// run).
    #[inline]
    fn bypass(&self, packets: &PacketList) -> bool {
        self.drained
            && packets.len() <= self.limit as usize
            && (packets.len() == 1 || self.bypass_several(packets))
    }

    #[inline]
    fn dequeue(
        &mut self,
        budget: usize,
        _now: Time,
        out: &mut PacketList,
        _: &mut Dropped,
    ) -> Next {
        let start = out.len();
        let (mut bytes, mut packets) = (0, 0);
        for band in &mut self.bands {
            let left = budget - (out.len() - start);
            band.consume(left, out, |packet| {
                bytes += packet.wire_len();
                packets += packet.wire_packets();
            });
        }
        let frames = out.len() - start;
        self.sent.bytes += bytes;
        self.sent.packets += packets;
        self.gone.0 += bytes;
        self.gone.1 += packets - frames as u64;
        // Not where the budget just sufficed: such a run may be given up with a sender's note unread.
        self.drained = frames < budget;
        if self.drained || self.is_empty() {
            Next::Idle
        } else {
            Next::Ready
        }
    }

    /// The rings stay open.
    fn drain(&mut self, out: &mut PacketList) {
        for band in &mut self.bands {
            let mut rest = band.take();
            let (bytes, extra) = sizes(&rest);
            self.gone.0 += bytes;
            self.gone.1 += extra;
            out.append(&mut rest);
        }
    }

    fn stats(&self) -> QdiscStats {
        let mut stats = self.left();
        self.rings.complete(&mut stats);
        stats
    }
}
