//! `tbf`: a token bucket (tc-tbf(8)). A packet leaves when the bucket holds tokens for all of its wire bytes; an optional second, small
//! bucket bounds the peak rate.
//!
//! Tokens are counted in billionths of a byte, so that `elapsed nanoseconds x bytes per second` is exact: no rounding
//! adds up, at any rate and packet size (the kernel counts nanoseconds per packet and rounds each down). Both buckets are changed only when
//! a packet leaves. INV-Q-3: over any window T at most `burst + rate * T` bytes leave.
//!
//! A large frame (GSO) longer than the bucket is segmented; anything else that is longer could never leave and is dropped with
//! [`DropReason::QdiscOversize`].

use super::fifo::Bfifo;
use super::{Next, Qdisc, QdiscStats, TbfSpec};
use crate::packet::{PacketList, segment};
use crate::pool::Pool;
use crate::stats::{DropReason, Dropped};
use crate::time::Time;

/// Token units in a byte.
const UNIT: u64 = 1_000_000_000;

/// One token bucket.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    /// Bytes per second, which is token units per nanosecond.
    rate: u64,
    /// Capacity in token units.
    capacity: u64,
    tokens: u64,
}

impl Bucket {
    /// Full, for at most `bytes` (up to 4 GiB, which keeps all products below 2^63).
    fn new(rate: u64, bytes: u64) -> Bucket {
        let capacity = bytes.min(u64::from(u32::MAX)) * UNIT;
        Bucket {
            rate,
            capacity,
            tokens: capacity,
        }
    }

    /// Tokens after `elapsed` nanoseconds.
    fn after(&self, elapsed: u64) -> u64 {
        self.tokens
            .saturating_add(elapsed.saturating_mul(self.rate))
            .min(self.capacity)
    }

    /// Nanoseconds until `cost` tokens are there, counted from a moment with `tokens` of them.
    fn wait(&self, tokens: u64, cost: u64) -> u64 {
        cost.saturating_sub(tokens).div_ceil(self.rate)
    }
}

/// `tbf`, a token bucket (tc-tbf(8)). Over any time `T` at most `burst + rate * T` bytes leave, and not less while packets wait: no rounding adds up.
/// A large frame longer than the bucket is segmented; anything else that is longer is dropped.
#[derive(Debug)]
pub struct Tbf {
    queue: Bfifo,
    rate: Bucket,
    peak: Option<Bucket>,
    /// When the buckets were last changed; `None` before the first packet, when they are full.
    changed: Option<Time>,
    /// The longest wire length that may pass: the smaller bucket.
    max_size: u64,
    pool: Pool,
    stats: QdiscStats,
}

impl Tbf {
    /// An empty queue with full buckets. `pool` provides the buffers of segmented frames. `spec` has been
    /// [checked](super::QdiscSpec::build).
    pub(super) fn new(spec: &TbfSpec, pool: Pool) -> Tbf {
        let peak = spec
            .peakrate
            .map(|rate| Bucket::new(rate, u64::from(spec.mtu)));
        Tbf {
            queue: Bfifo::new(spec.limit),
            rate: Bucket::new(spec.rate, spec.burst),
            peak,
            changed: None,
            max_size: peak.map_or(spec.burst, |_| spec.burst.min(u64::from(spec.mtu))),
            pool,
            stats: QdiscStats::default(),
        }
    }
}

impl Qdisc for Tbf {
    fn enqueue(&mut self, packets: &mut PacketList, now: Time, dropped: &mut Dropped) {
        let before = self.queue.stats().drops;
        let mut accepted = PacketList::new();
        while let Some(packet) = packets.pop_front() {
            if packet.wire_len() <= self.max_size {
                accepted.push_back(packet);
            } else if packet.gso().is_some() {
                let mut parts = PacketList::new();
                if let Err(error) = segment(packet, &self.pool, &mut parts) {
                    self.stats.drops += 1;
                    dropped.note(error.reason, error.packets);
                }
                while let Some(part) = parts.pop_front() {
                    if part.wire_len() <= self.max_size {
                        accepted.push_back(part);
                    } else {
                        self.stats.drops += 1;
                        dropped.push(part, DropReason::QdiscOversize);
                    }
                }
            } else {
                self.stats.drops += 1;
                dropped.push(packet, DropReason::QdiscOversize);
            }
        }
        self.queue.enqueue(&mut accepted, now, dropped);
        self.stats.drops += self.queue.stats().drops - before;
    }

    fn dequeue(&mut self, budget: usize, now: Time, out: &mut PacketList, _: &mut Dropped) -> Next {
        for _ in 0..budget {
            let Some(head) = self.queue.front() else {
                return Next::Idle;
            };
            let cost = head.wire_len() * UNIT;
            let elapsed = self
                .changed
                .map_or(u64::MAX, |then| now.since(then).as_nanos() as u64);
            let tokens = self.rate.after(elapsed);
            let peak_tokens = self.peak.map_or(0, |peak| peak.after(elapsed));
            let wait = self
                .rate
                .wait(tokens, cost)
                .max(self.peak.map_or(0, |peak| peak.wait(peak_tokens, cost)));
            if wait > 0 {
                self.stats.overlimits += 1;
                return Next::At(now.plus_nanos(wait));
            }
            self.changed = Some(self.changed.map_or(now, |then| then.max(now)));
            self.rate.tokens = tokens - cost;
            if let Some(peak) = &mut self.peak {
                peak.tokens = peak_tokens - cost;
            }
            out.extend(self.queue.pop());
        }
        if self.queue.front().is_some() {
            Next::Ready
        } else {
            Next::Idle
        }
    }

    fn drain(&mut self, out: &mut PacketList) {
        self.queue.drain(out);
    }

    fn stats(&self) -> QdiscStats {
        let QdiscStats {
            drops, overlimits, ..
        } = self.stats;
        QdiscStats {
            drops,
            overlimits,
            ..self.queue.stats()
        }
    }
}
