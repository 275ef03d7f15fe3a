//! When a packet may leave: by a clock of one's own, or by a rate that several instances share.
//!
//! Where a tree runs as several instances, they are one `cake`: its rate is one
//! [shared rate](crate::rate), drawn by turns. Instances weigh as much as the flows in their
//! backlogs, and those as much as is theirs of their hosts and of their tins, counted over all
//! instances: so hosts, flows and tins have about the shares that one queue would give them. See
//! [`Shared::demand`].

use std::sync::Arc;

use softnet::qdisc::Next;
use softnet::sync::primitive::{AtomicU64, Ordering};
use softnet::time::Time;

use super::framing::Link;
use super::loads::{AllLoads, Loads};
use super::shaper::Shaper;
use super::spec::{CakeSpec, Isolation};
use super::tin::Tin;
use super::tins::MAX_TINS;
use crate::account::MAX_HEADER;
use crate::handle::Handle;
use crate::qdisc::spec::QdiscEnv;
use crate::rate::{Demand, Instance, Members, Pot, RateSpec, SharedRate};

/// Weight of one host with a backlog in one tin.
const WEIGHT: u64 = 1 << 16;

/// The rate of a `cake`.
#[derive(Debug)]
pub(super) enum Gate {
    Own(Shaper),
    Shared(Box<Shared>),
}

/// A rate that several instances share, if there is one, and what they say of themselves.
#[derive(Debug)]
pub(super) struct Shared {
    rate: Option<(Arc<SharedRate>, Pot)>,
    weights: Arc<Weights>,
    loads: Arc<AllLoads>,
    demand: Demand,
    instance: Instance,
    handle: Handle,
}

/// For each instance the weight of its flows in each tin. One writer each; hints, as those of
/// the turns: whatever is read, the bound of the rate holds.
#[derive(Debug)]
struct Weights(Box<[Line]>);

#[derive(Debug, Default)]
#[repr(align(64))]
struct Line([AtomicU64; MAX_TINS]);

/// The rate that instances share: with a burst of which half is what all pots hold and what comes
/// in a millisecond, so that none is lost while instances wait for their turns.
fn rate_of(rate: u64, link: &Link, mtu: u32, members: &Members) -> RateSpec {
    let spec = RateSpec {
        rate,
        burst: 0,
        unit: link.most(u64::from(mtu) + MAX_HEADER),
    };
    let pots = (members.count() as u64).saturating_mul(spec.quantum());
    RateSpec {
        burst: 2 * pots.saturating_add(rate / 1000),
        ..spec
    }
}

/// Numbers of what instances share.
const RATE: u8 = 0;
const WEIGHTS: u8 = 1;
const LOADS: u8 = 2;

impl Gate {
    pub(super) fn new(
        spec: &CakeSpec,
        link: &Link,
        handle: Handle,
        mtu: u32,
        env: &QdiscEnv,
    ) -> Gate {
        let Some(instance) = env.instance.clone() else {
            return Gate::Own(Shaper::default());
        };
        let weights = instance.rates.share(handle, WEIGHTS, |members| {
            let lines = (0..members.count()).map(|_| Line::default());
            Arc::new(Weights(lines.collect()))
        });
        let loads = instance.rates.share(handle, LOADS, |_| Arc::default());
        let mut shared = Box::new(Shared {
            rate: None,
            weights,
            loads,
            demand: Demand::flows(1),
            instance,
            handle,
        });
        shared.change(spec, link, mtu, Time::ZERO);
        Gate::Shared(shared)
    }

    /// Takes other parameters.
    pub(super) fn change(&mut self, spec: &CakeSpec, link: &Link, mtu: u32, now: Time) {
        if let Gate::Shared(shared) = self {
            shared.change(spec, link, mtu, now);
        }
    }

    /// Another rate, for one that has it alone.
    pub(super) fn set_rate(&mut self, rate: u64) {
        if let Gate::Own(shaper) = self {
            shaper.set_rate(rate);
        }
    }

    /// Loads of the hosts of a tin over all instances, if there are several.
    pub(super) fn loads(&self, tin: usize) -> Option<Arc<Loads>> {
        match self {
            Gate::Own(_) => None,
            Gate::Shared(shared) => shared.loads.tin(tin),
        }
    }

    /// True if the estimate of what arrives may set the rate.
    pub(super) fn is_own(&self) -> bool {
        matches!(self, Gate::Own(_))
    }

    /// The first packet is queued.
    #[inline]
    pub(super) fn begin(&mut self, now: Time) {
        if let Gate::Own(shaper) = self {
            shaper.begin(now);
        }
    }

    /// When a packet may leave, if that is not now.
    #[inline]
    pub(super) fn wait(
        &mut self,
        tins: &mut [Tin],
        isolation: Isolation,
        now: Time,
    ) -> Option<Time> {
        match self {
            Gate::Own(shaper) => shaper.wait(now),
            Gate::Shared(shared) => shared.wait(tins, isolation, now),
        }
    }

    /// As [`wait`](Gate::wait), as far as it can be told without asking for a turn.
    pub(super) fn held(&self, now: Time) -> Option<Time> {
        match self {
            Gate::Own(shaper) => shaper.wait(now),
            Gate::Shared(_) => None,
        }
    }

    /// Charges a packet; one that was dropped, or one that leaves.
    #[inline]
    pub(super) fn charge(&mut self, bytes: u64, dropped: bool, now: Time) {
        match self {
            Gate::Own(shaper) => shaper.charge(bytes, dropped),
            Gate::Shared(shared) => {
                if let Some((_, pot)) = &mut shared.rate {
                    pot.charge(bytes, shared.demand, now);
                }
            }
        }
    }

    /// The call ends.
    #[inline]
    pub(super) fn end(&mut self, next: Next, now: Time) {
        let Gate::Shared(shared) = self else { return };
        shared.instance.announce(next, now);
        if next == Next::Idle {
            shared.leave();
        }
    }

    /// Nothing is queued any more.
    pub(super) fn leave(&mut self) {
        if let Gate::Shared(shared) = self {
            shared.leave();
        }
    }
}

impl Shared {
    /// For all instances: the first that does it, does it for all.
    fn change(&mut self, spec: &CakeSpec, link: &Link, mtu: u32, now: Time) {
        let members = self.instance.rates.members().clone();
        let of = |rate| rate_of(rate, link, mtu, &members);
        self.rate = match (spec.bandwidth, self.rate.take()) {
            (None, _) => None,
            (Some(bytes), Some((rate, pot))) => {
                rate.set(of(bytes), now);
                Some((rate, pot))
            }
            (Some(bytes), None) => {
                let make = |members: &Arc<Members>| SharedRate::new(of(bytes), members);
                let rate = self.instance.rates.share(self.handle, RATE, make);
                let pot = rate.pot(self.instance.index);
                Some((rate, pot))
            }
        };
    }

    fn wait(&mut self, tins: &mut [Tin], isolation: Isolation, now: Time) -> Option<Time> {
        let (_, pot) = self.rate.as_mut()?;
        if pot.covers(0, now) {
            return None;
        }
        self.demand = demand(&self.weights, self.instance.index, tins, isolation);
        pot.ready(self.demand, now).err()
    }

    fn leave(&mut self) {
        for weight in &self.weights.0[self.instance.index].0 {
            if weight.load(Ordering::Relaxed) != 0 {
                weight.store(0, Ordering::Relaxed);
            }
        }
        if let Some((_, pot)) = &mut self.rate {
            pot.leave();
        }
    }
}

/// Demand of an instance, and the part of each tin's rate that is its own.
///
/// A tin has the part of the rate that a single `cake` gives it where all that have flows use what
/// they get: the later tins first, each its own part, and what is left to the first. Of that an
/// instance has as much as it has of the flows' weights.
fn demand(weights: &Weights, index: usize, tins: &mut [Tin], isolation: Isolation) -> Demand {
    const ALL: u64 = 1 << 16;
    let whole = tins.first().map_or(0, |tin| tin.rate).max(1);
    let (mut left, mut sum) = (ALL, 0);
    for (n, tin) in tins.iter_mut().enumerate().rev() {
        let own = if tin.is_active() {
            tin.weight(WEIGHT, isolation).max(1)
        } else {
            0
        };
        let all = weights
            .0
            .iter()
            .enumerate()
            .map(|(of, line)| match of == index {
                true => own,
                false => line.0[n].load(Ordering::Relaxed),
            });
        let all: u64 = all.sum();
        weights.0[index].0[n].store(own, Ordering::Relaxed);
        if all == 0 {
            continue;
        }
        let part = u128::from(tin.rate) * u128::from(ALL) / u128::from(whole);
        // None is left without any.
        let part = (part as u64).min(left).max(ALL / 64);
        left = left.saturating_sub(part);
        if own > 0 {
            sum += u128::from(part) * u128::from(own) / u128::from(all);
            tin.instances = (all.saturating_mul(256) / own).max(256);
        }
    }
    Demand {
        weight: u32::try_from(sum).unwrap_or(u32::MAX).max(1),
        prio: 0,
    }
}
