//! CoDel, which keeps a queue's delay low (RFC 8289): the state of one queue, and what the queues
//! of one qdisc share.
//!
//! The sojourn time of the packet that leaves is measured, from the sender's push, or from its
//! enqueue if it has a departure time. If it has been at or above `target` for `interval`, packets
//! are dropped, or marked if they are ECN-capable, at shrinking distances (`interval /
//! sqrt(count)`) until one leaves earlier than that.
//!
//! Times are exact nanoseconds, and so is the control law. (The kernel counts 1,024 ns and
//! approximates the root by one Newton step for each drop, which makes the second distance
//! `interval / 2`.)
//!
//! At most [`DROPS_PER_PACKET`] packets are dropped before one leaves. What is due beyond that,
//! after a link that stood still for seconds, is forgiven: the next drop is due one distance from
//! now. (The kernel does so from Linux 7.2 on, after 256; in RFC 8289 one call drops all of it.)

use std::time::Duration;

use super::option::parameters;
use super::spec::{QdiscEnv, SpecError};
use softnet::mem::{Packet, PacketList, Pool};
use softnet::qdisc::{Cx, QdiscStats, WireSum};
use softnet::stats::DropReason;
use softnet::time::Time;
use softnet::wire::{set_ce, traffic_class};

parameters! {
    /// CoDel's parameters, as in tc-codel(8). Defaults are the values of RFC 8289, without ECN.
    pub struct AqmSpec {
        /// The sojourn time that is accepted for good.
        pub target: Duration = Duration::from_millis(5),
        /// The time in which a burst must have drained: about the longest round trip. At least 1
        /// µs.
        pub interval: Duration = Duration::from_millis(100),
        /// Marks ECN-capable packets where others are dropped.
        pub ecn: bool = false,
        /// Marks every ECN-capable packet that has waited longer (DCTCP, L4S).
        pub ce_threshold: Option<Duration> = None,
        /// [`ce_threshold`](AqmSpec::ce_threshold) is for packets whose traffic class has these
        /// bits under `ce_threshold_mask`. A mask of 0 takes all.
        pub ce_threshold_selector: u8 = 0,
        /// See [`ce_threshold_selector`](AqmSpec::ce_threshold_selector).
        pub ce_threshold_mask: u8 = 0,
    }
}

impl AqmSpec {
    pub(crate) fn check(&self, kind: &'static str) -> Result<(), SpecError> {
        if self.interval < Duration::from_micros(1) {
            let reason = "must be at least 1 us";
            return Err(SpecError::parameter(kind, "interval", reason));
        }
        Ok(())
    }
}

/// Parameters and statistics of all CoDel queues of a qdisc.
#[derive(Debug)]
pub(crate) struct Aqm {
    spec: AqmSpec,
    target: u64,
    interval: u64,
    /// Wire bytes that a queue may hold whatever its sojourn time: one packet.
    mtu: u64,
    /// The latest time of a call.
    now: Time,
    /// Packets that may be dropped before one leaves.
    may_drop: u32,
    /// Wire bytes of the longest frame that was taken out.
    pub(crate) max_packet: u64,
    /// Packets that were marked instead of dropped.
    pub(crate) ecn_marks: u64,
    /// Packets that were marked for `ce_threshold`.
    pub(crate) ce_marks: u64,
}

/// A packet of 9,000 bytes in Ethernet. A device with a larger MTU (64 KiB on a loopback) would
/// almost never hold more than one packet (BUG-CODEL-5).
const MAX_MTU: u64 = 9_014;
/// Packets that are dropped before one leaves, at most, so that a call's cost is bounded by what
/// it is asked for.
pub(crate) const DROPS_PER_PACKET: u32 = 16;
/// Bytes of an Ethernet header.
pub(crate) const ETHERNET_LEN: u32 = 14;

/// Nanoseconds; what is longer than 584 years is endless.
pub(crate) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Aqm {
    pub(crate) fn new(spec: &AqmSpec, env: &QdiscEnv) -> Aqm {
        let mut aqm = Aqm {
            spec: AqmSpec::default(),
            target: 0,
            interval: 0,
            mtu: (u64::from(env.mtu) + u64::from(ETHERNET_LEN)).min(MAX_MTU),
            now: Time::ZERO,
            may_drop: 0,
            max_packet: 0,
            ecn_marks: 0,
            ce_marks: 0,
        };
        aqm.change(spec);
        aqm
    }

    pub(crate) fn change(&mut self, spec: &AqmSpec) {
        self.spec = spec.clone();
        self.target = nanos(spec.target);
        self.interval = nanos(spec.interval);
    }

    /// Packets are going to be taken out. A sender may have read its clock long before it became
    /// the queue's owner: time does not go back for that.
    #[inline]
    pub(crate) fn begin(&mut self, now: Time) {
        self.now = self.now.max(now);
        self.may_drop = DROPS_PER_PACKET;
    }

    /// Sojourn time of a packet, in nanoseconds.
    #[inline]
    pub(crate) fn sojourn(&self, packet: &Packet) -> u64 {
        self.now.nanos().saturating_sub(packet.timestamp().nanos())
    }

    /// True if packets that come now, the oldest first, have already waited longer than
    /// `ce_threshold` for the queue's owner.
    #[inline]
    pub(crate) fn come_late(&self, packets: &PacketList, now: Time) -> bool {
        self.spec.ce_threshold.is_some_and(|threshold| {
            let first = packets.front();
            first.is_some_and(|packet| now.since(packet.timestamp()) > threshold)
        })
    }

    /// Marks a packet that is dropped otherwise.
    fn mark(&mut self, packet: &mut Packet, pool: &Pool) -> bool {
        let marked = self.spec.ecn && mark_ce(packet, pool);
        self.ecn_marks += u64::from(marked);
        marked
    }

    /// Marks a packet that waited longer than `ce_threshold`.
    #[inline]
    fn mark_late(&mut self, packet: &mut Packet, cx: &Cx) {
        let Some(threshold) = self.spec.ce_threshold else {
            return;
        };
        let (mask, selector) = (self.spec.ce_threshold_mask, self.spec.ce_threshold_selector);
        let chosen = |class: u8| class & mask == selector;
        if self.now.since(packet.timestamp()) > threshold
            && (mask == 0 || traffic_class(packet.data()).is_some_and(chosen))
        {
            self.ce_marks += u64::from(mark_ce(packet, &cx.pool));
        }
    }
}

/// Notes on an ECN-capable packet that it met congestion; false for others. Data that other
/// packets share is copied first.
pub(crate) fn mark_ce(packet: &mut Packet, pool: &Pool) -> bool {
    let capable = traffic_class(packet.data()).is_some_and(|class| class & 3 != 0);
    capable && packet.make_unique(pool) && set_ce(packet.data_mut())
}

/// CoDel's state of one queue. The packets are in a list of the caller's.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Codel {
    /// When dropping may start: `interval` after the sojourn time reached the target. [`BELOW`]
    /// and [`DROPPING`] are the other two states.
    first_above: Time,
    /// When the next packet is to be dropped; kept when dropping ends.
    drop_next: Time,
    /// Packets dropped since dropping began, and where that count began.
    count: u32,
    last_count: u32,
}

/// The sojourn time is below the target.
const BELOW: Time = Time::ZERO;
/// Packets are being dropped.
const DROPPING: Time = Time::MAX;

impl Codel {
    /// Packets dropped since dropping began, where that count began, and when the next packet is
    /// to be dropped, if some are.
    pub(crate) fn state(&self) -> (u32, u32, Option<Time>) {
        let dropping = self.first_above == DROPPING;
        let drop_next = dropping.then_some(self.drop_next);
        (self.count, self.last_count, drop_next)
    }

    /// Takes note that a packet was dropped for the queue's length (RFC 8290 4.1).
    pub(crate) fn count_drop(&mut self) {
        self.count = self.count.saturating_add(1);
    }

    /// Takes note that nothing waits.
    #[inline]
    pub(crate) fn clear(&mut self) {
        self.first_above = BELOW;
    }

    /// Takes out the packet that leaves next (RFC 8289 5.4, `deque`). What is dropped on the way
    /// is counted in `stats`, which are the qdisc's: a queue that is alone in having packets is
    /// not dropped from if `stats` say that no more than one packet is queued.
    #[inline]
    pub(crate) fn dequeue(
        &mut self,
        queue: &mut PacketList,
        aqm: &mut Aqm,
        stats: &mut QdiscStats,
        cx: &mut Cx,
    ) -> Option<Packet> {
        let (mut packet, over) = self.take(queue, aqm, stats);
        if over {
            packet = self.drop_from(packet?, queue, aqm, stats, cx);
        }
        let mut packet = packet?;
        aqm.mark_late(&mut packet, cx);
        aqm.may_drop = DROPS_PER_PACKET;
        let (bytes, packets) = packet.wire();
        stats.count_sent(WireSum { packets, bytes });
        Some(packet)
    }

    /// Takes the oldest packet, and says whether it may be dropped (RFC 8289 5.5, `dodequeue`).
    #[inline]
    fn take(
        &mut self,
        queue: &mut PacketList,
        aqm: &mut Aqm,
        stats: &mut QdiscStats,
    ) -> (Option<Packet>, bool) {
        let Some(packet) = queue.pop_front() else {
            self.first_above = BELOW;
            return (None, false);
        };
        stats.count_removed(&packet);
        aqm.max_packet = aqm.max_packet.max(packet.wire_len());
        if aqm.sojourn(&packet) < aqm.target || stats.backlog <= aqm.mtu {
            self.first_above = BELOW;
            return (Some(packet), false);
        }
        if self.first_above == BELOW {
            let end = aqm.now.plus_nanos(aqm.interval);
            // An endless interval does not end.
            self.first_above = end.min(Time(DROPPING.0 - 1));
            return (Some(packet), false);
        }
        let over = self.first_above == DROPPING || self.first_above <= aqm.now;
        (Some(packet), over)
    }

    /// The sojourn time has been above the target for an interval: drops or marks what is due.
    /// Returns the packet that leaves.
    #[cold]
    fn drop_from(
        &mut self,
        mut packet: Packet,
        queue: &mut PacketList,
        aqm: &mut Aqm,
        stats: &mut QdiscStats,
        cx: &mut Cx,
    ) -> Option<Packet> {
        let now = aqm.now;
        if self.first_above != DROPPING {
            if aqm.may_drop == 0 {
                return Some(packet);
            }
            let marked = aqm.mark(&mut packet, &cx.pool);
            // Not long after the last time: begin with the rate of drops that was right then.
            let since = now.nanos().saturating_sub(self.drop_next.nanos());
            let grown = self.count.wrapping_sub(self.last_count);
            let recent = grown > 1 && since < aqm.interval.saturating_mul(16);
            self.count = if recent { grown } else { 1 };
            self.last_count = self.count;
            self.drop_next = self.control_law(now, aqm);
            self.first_above = DROPPING;
            if marked {
                return Some(packet);
            }
            return self.drop_one(packet, queue, aqm, stats, cx).0;
        }
        while now >= self.drop_next {
            if aqm.may_drop == 0 {
                self.drop_next = self.control_law(now, aqm);
                break;
            }
            self.count = self.count.saturating_add(1);
            if aqm.mark(&mut packet, &cx.pool) {
                self.drop_next = self.control_law(self.drop_next, aqm);
                break;
            }
            let (next, over) = self.drop_one(packet, queue, aqm, stats, cx);
            packet = next?;
            if !over {
                break;
            }
            self.drop_next = self.control_law(self.drop_next, aqm);
        }
        Some(packet)
    }

    /// Drops a packet and takes the next.
    fn drop_one(
        &mut self,
        packet: Packet,
        queue: &mut PacketList,
        aqm: &mut Aqm,
        stats: &mut QdiscStats,
        cx: &mut Cx,
    ) -> (Option<Packet>, bool) {
        stats.drops += 1;
        aqm.may_drop -= 1;
        cx.dropped.push(packet, DropReason::QdiscCongested);
        self.take(queue, aqm, stats)
    }

    /// `interval / sqrt(count)` later (RFC 8289 5.6), and never at the same time.
    fn control_law(&self, from: Time, aqm: &Aqm) -> Time {
        // Square root and division are exact to the last of 53 bits, on every machine.
        let distance = aqm.interval as f64 / f64::from(self.count).sqrt();
        from.plus_nanos((distance as u64).max(1))
    }
}

/// Gives a packet that its sender did not stamp the time of its enqueue: one that was on its way
/// when the qdisc was installed, comes from a program without a device, or has a departure time.
/// (A push that is later than `now` stays: its sender read the clock after the queue's owner.)
#[inline]
pub(crate) fn stamp(packet: &mut Packet, now: Time) {
    if packet.timestamp() == Time::ZERO || packet.departure_time().is_some() {
        packet.set_timestamp(now);
    }
}
