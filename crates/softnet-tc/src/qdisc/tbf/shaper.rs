//! The buckets of a [`Tbf`](crate::Tbf).

use softnet::qdisc::WireSize;
use softnet::time::Time;

use super::kind::TbfSpec;
use super::shared::SharedBuckets;
use crate::account::LinkCost;
use crate::rate::{Bucket, UNIT};

/// The two buckets, and what they let pass.
#[derive(Debug)]
pub(super) struct Shaper {
    pub(super) rate: Bucket,
    pub(super) peak: Option<Bucket>,
    pub(super) link: LinkCost,
    /// The buckets have been filled up to this time.
    pub(super) changed: Time,
    /// The longest wire length that is let in: the smaller bucket.
    pub(super) max_size: u64,
    /// The most tokens that a frame that is let in may cost: the smaller bucket with the link's
    /// framing.
    pub(super) max_price: u64,
    /// One bucket, and a packet costs its length.
    pub(super) is_simple: bool,
    /// In the place of both, where there are several instances.
    pub(super) shared: Option<Box<SharedBuckets>>,
}

impl Shaper {
    pub(super) fn new(spec: &TbfSpec, shared: Option<Box<SharedBuckets>>) -> Shaper {
        // As the kernel does: a bucket holds what one packet of its size costs.
        let rate = Bucket::new(spec.rate, spec.link.charge(spec.burst));
        let mtu = u64::from(spec.mtu);
        let peak = spec
            .peakrate
            .map(|rate| Bucket::new(rate, spec.link.charge(mtu)));
        Shaper {
            rate,
            peak,
            link: spec.link,
            changed: Time::ZERO,
            max_size: peak.map_or(spec.burst, |_| spec.burst.min(mtu)),
            max_price: peak
                .map_or(u64::MAX, |peak| peak.capacity())
                .min(rate.capacity()),
            is_simple: peak.is_none() && spec.link.is_plain() && shared.is_none(),
            shared,
        }
    }

    /// Cost of a frame, in token units.
    #[inline]
    pub(super) fn price(&self, size: WireSize) -> u64 {
        self.link.cost(size).saturating_mul(UNIT)
    }

    /// True if a frame may be let in: in one piece it costs no more than the buckets hold.
    #[inline]
    pub(super) fn admits(&self, size: WireSize) -> bool {
        size.bytes <= self.max_size && self.price(size) <= self.max_price
    }

    /// Tokens in both buckets now, and nanoseconds until they suffice or are full.
    #[inline]
    pub(super) fn ask(&self, price: u64, now: Time) -> (u64, u64, u64) {
        let (now, then) = (now.nanos(), self.changed.nanos());
        let elapsed = now.saturating_sub(then);
        let tokens = self.rate.after(elapsed);
        let mut wait = self.rate.wait(tokens, price);
        let mut peak_tokens = 0;
        if let Some(peak) = &self.peak {
            peak_tokens = peak.after(elapsed);
            wait = wait.max(peak.wait(peak_tokens, price));
        }
        if wait > 0 {
            // They are filled from `changed` on, which may be later than now.
            wait = wait.saturating_add(then.saturating_sub(now));
        }
        (tokens, peak_tokens, wait)
    }

    /// Takes the tokens for a frame. A price above what a bucket holds takes all of it, and the
    /// rest in time in which it is not filled.
    #[inline]
    pub(super) fn charge(&mut self, (tokens, peak_tokens): (u64, u64), price: u64, now: Time) {
        self.rate.set(tokens.saturating_sub(price));
        let mut debt = self.rate.time_for(price.saturating_sub(tokens));
        if let Some(peak) = &mut self.peak {
            peak.set(peak_tokens.saturating_sub(price));
            debt = debt.max(peak.time_for(price.saturating_sub(peak_tokens)));
        }
        self.changed = self.changed.max(now).plus_nanos(debt);
    }

    /// Takes the tokens for a frame, or says how long to wait for them.
    #[inline]
    pub(super) fn take(
        &mut self,
        price: u64,
        flows: impl Fn() -> u16,
        now: Time,
    ) -> Result<(), u64> {
        if let Some(shared) = &mut self.shared {
            return shared.take(price / UNIT, flows, now);
        }
        match self.ask(price, now) {
            (tokens, peak_tokens, 0) => {
                self.charge((tokens, peak_tokens), price, now);
                Ok(())
            }
            (.., wait) => Err(wait),
        }
    }

    /// Takes the tokens for the next wire packets of a frame that is segmented, at most `limit`.
    /// Returns how many were paid for, and how long to wait for the tokens of the next, if they
    /// were missing.
    pub(super) fn take_some(
        &mut self,
        size: WireSize,
        limit: u64,
        flows: impl Fn() -> u16,
        now: Time,
    ) -> (u64, Option<u64>) {
        for paid in 0..limit.min(size.packets) {
            let mut one = size;
            if paid + 1 == size.packets {
                one.each = size.bytes.saturating_sub(paid * size.each);
            }
            if let Err(wait) = self.take(self.price(one.first()), &flows, now) {
                return (paid, Some(wait));
            }
        }
        (limit.min(size.packets), None)
    }
}
