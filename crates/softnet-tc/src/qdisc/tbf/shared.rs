//! The buckets of a [`Tbf`](crate::Tbf) that runs as several instances: pots of shared rates.
//!
//! Beside what [`rate`](crate::rate) says of the rates: each instance has a class with a queue of
//! its own, so `limit` holds for each. Instances share the rate by the flows in their backlogs, if
//! the class has a qdisc that tells flows apart; else they have equal shares.

use std::sync::Arc;

use softnet::qdisc::Next;
use softnet::time::Time;

use crate::account::MAX_HEADER;
use crate::handle::Handle;
use crate::qdisc::spec::QdiscEnv;
use crate::qdisc::tbf::TbfSpec;
use crate::rate::{Instance, Pot, RateSpec, SharedRate};

/// One of the two rates, and this instance's pot.
#[derive(Debug)]
struct Shared {
    rate: Arc<SharedRate>,
    pot: Pot,
}

/// Numbers of what the instances share.
const RATE: u8 = 0;
const PEAK: u8 = 1;

/// The buckets of one instance. Prices are bytes.
#[derive(Debug)]
pub(crate) struct SharedBuckets {
    rate: Shared,
    peak: Option<Shared>,
    instance: Instance,
    handle: Handle,
    mtu: u64,
}

impl SharedBuckets {
    /// Buckets of the instance that a qdisc is made for, if there are several.
    pub(crate) fn new(spec: &TbfSpec, handle: Handle, env: &QdiscEnv) -> Option<SharedBuckets> {
        let instance = env.instance.clone()?;
        let mtu = u64::from(env.mtu) + MAX_HEADER;
        let (rate, peak) = rates(spec, mtu);
        Some(SharedBuckets {
            rate: share(&instance, handle, RATE, rate),
            peak: peak.map(|peak| share(&instance, handle, PEAK, peak)),
            instance,
            handle,
            mtu,
        })
    }

    /// Takes other parameters, for all instances: the first that does it, does it for all. Tokens
    /// stay, as far as the buckets hold them.
    pub(crate) fn change(&mut self, spec: &TbfSpec, now: Time) {
        let (rate, peak) = rates(spec, self.mtu);
        self.rate.rate.set(rate, now);
        self.peak = match (peak, self.peak.take()) {
            (None, _) => None,
            (Some(peak), Some(shared)) => {
                shared.rate.set(peak, now);
                Some(shared)
            }
            (Some(peak), None) => Some(share(&self.instance, self.handle, PEAK, peak)),
        };
    }

    /// True if the tokens are in the pots.
    #[inline]
    pub(crate) fn covers(&self, price: u64, now: Time) -> bool {
        let peak = self.peak.as_ref();
        self.rate.pot.covers(price, now) && peak.is_none_or(|peak| peak.pot.covers(price, now))
    }

    /// True if there are the tokens now for what comes while nothing is queued. If there are too
    /// few, none are reserved.
    #[inline]
    pub(crate) fn has(&mut self, price: u64, now: Time) -> bool {
        self.covers(price, now) || self.fill(price, now)
    }

    #[cold]
    fn fill(&mut self, price: u64, now: Time) -> bool {
        // One flow, as far as can be told, and no backlog.
        let peak = self.peak.as_mut();
        let has = self.rate.pot.has(price, 1, now)
            && peak.is_none_or(|peak| peak.pot.has(price, 1, now));
        self.leave();
        has
    }

    /// Takes the tokens for a frame, or reserves its turn and says how long to wait.
    #[inline]
    pub(crate) fn take(
        &mut self,
        price: u64,
        flows: impl Fn() -> u16,
        now: Time,
    ) -> Result<(), u64> {
        if !self.covers(price, now) {
            let flows = flows();
            let rate = self.rate.pot.reserve(price, flows, now);
            let peak = self.peak.as_mut();
            let peak = peak.map_or(Ok(()), |peak| peak.pot.reserve(price, flows, now));
            if let Some(time) = rate.err().max(peak.err()) {
                return Err(time.nanos().saturating_sub(now.nanos()).max(1));
            }
        }
        self.spend(price);
        Ok(())
    }

    #[inline]
    pub(crate) fn spend(&mut self, price: u64) {
        self.rate.pot.spend(price);
        if let Some(peak) = &mut self.peak {
            peak.pot.spend(price);
        }
    }

    /// This instance has run.
    #[inline]
    pub(crate) fn announce(&self, next: Next, now: Time) {
        self.instance.announce(next, now);
    }

    /// This instance has nothing left to send.
    #[inline]
    pub(crate) fn leave(&mut self) {
        self.rate.pot.leave();
        if let Some(peak) = &mut self.peak {
            peak.pot.leave();
        }
    }
}

fn rates(spec: &TbfSpec, mtu: u64) -> (RateSpec, Option<RateSpec>) {
    let unit = spec.link.charge(mtu);
    let of = |rate, bytes| RateSpec {
        rate,
        burst: spec.link.charge(bytes),
        unit,
    };
    let peak = spec.peakrate.map(|peak| of(peak, spec.mtu.into()));
    (of(spec.rate, spec.burst), peak)
}

fn share(instance: &Instance, handle: Handle, number: u8, spec: RateSpec) -> Shared {
    let make = |members: &Arc<_>| SharedRate::new(spec, members);
    let rate = instance.rates.share(handle, number, make);
    let pot = rate.pot(instance.index);
    Shared { rate, pot }
}
