//! Rates that a class shares with itself in other instances of its tree: two, of which each
//! instance has a pot.
//!
//! A leaf's pots are shared out by the flows in its backlog. Those of an inner class are lent to
//! leaves below: an instance asks for as much as its leaves would get if all were in one, which is
//! the sum of their quanta, each times the part of the leaf's flows that is here. It asks with the
//! highest priority that waits for this class here; others with lower ones leave it alone
//! meanwhile. What a class below sends with tokens of its own is charged without asking.

use std::sync::Arc;

use softnet::time::Time;

use super::HtbClassSpec;
use super::class::{Mode, PRIOS};
use crate::handle::Handle;
use crate::rate::{Demand, Instance, Pot, RateSpec, SharedRate, UNIT};

/// Nanoseconds after which it is looked again how a leaf's flows are spread.
const LOOK: u64 = 200_000;

/// Sharing of one instance: what its classes have in common.
#[derive(Clone, Debug)]
pub(super) struct Sharing {
    pub(super) instance: Instance,
    /// The qdisc.
    pub(super) handle: Handle,
    /// Bytes of the longest packet.
    pub(super) unit: u64,
}

/// The pots of a class.
#[derive(Debug)]
pub(super) struct Pots {
    rate: Pot,
    ceil: Pot,
    /// Flows in a leaf's backlog.
    pub(super) flows: u16,
    /// A leaf's quantum, as far as its flows are here.
    pub(super) quantum: i32,
    shares: Box<Shares>,
}

#[derive(Debug)]
struct Shares {
    rate: Arc<SharedRate>,
    ceil: Arc<SharedRate>,
    /// For each priority, what is asked for: by those below that wait for this class, or by the
    /// leaf, at any, if it is to borrow. In 1/16 bytes.
    weights: [u64; PRIOS],
    /// When a leaf's weight is due for a look.
    look: Time,
}

fn specs(spec: &HtbClassSpec, unit: u64) -> [RateSpec; 2] {
    [(spec.rate, spec.burst), (spec.ceil, spec.cburst)].map(|(rate, burst)| RateSpec {
        rate,
        burst,
        unit,
    })
}

impl Pots {
    /// Pots of a leaf.
    pub(super) fn new(sharing: &Sharing, minor: u16, spec: &HtbClassSpec) -> Pots {
        let Instance { index, rates } = &sharing.instance;
        let class = sharing.handle.class(minor);
        let [rate, ceil] = specs(spec, sharing.unit);
        let share =
            |number, spec| rates.share(class, number, |members| SharedRate::new(spec, members));
        let (rate, ceil) = (share(0, rate), share(1, ceil));
        Pots {
            rate: rate.pot(*index),
            ceil: ceil.pot(*index),
            flows: 1,
            quantum: 0,
            shares: Box::new(Shares {
                rate,
                ceil,
                weights: [0; PRIOS],
                look: Time::ZERO,
            }),
        }
    }

    /// Takes other parameters, for all instances.
    pub(super) fn change(&mut self, spec: &HtbClassSpec, unit: u64, now: Time) {
        let [rate, ceil] = specs(spec, unit);
        self.shares.rate.set(rate, now);
        self.shares.ceil.set(ceil, now);
    }

    /// The class has others below it, or none any more.
    pub(super) fn set_inner(&mut self, inner: bool) {
        self.ceil.set_lends(inner);
        self.shares.weights = [0; PRIOS];
    }

    /// Nothing here asks for this class any more.
    #[inline]
    pub(super) fn leave(&mut self) {
        self.ceil.leave();
    }

    /// Demand on a class at these priorities. Without any, none.
    fn demand(&self, inner: bool, active: u8) -> Demand {
        if !inner && active != 0 {
            return Demand::flows(self.flows);
        }
        let prio = active.trailing_zeros() as u8;
        let weight = self.shares.weights.get(usize::from(prio));
        Demand {
            weight: weight.map_or(0, |&weight| u32::try_from(weight).unwrap_or(u32::MAX)),
            prio: prio.min(7),
        }
    }

    /// Mode of the class now, and nanoseconds until it may do more.
    pub(super) fn mode_at(&mut self, inner: bool, active: u8, now: Time) -> (Mode, u64) {
        let demand = self.demand(inner, active);
        match self.ceil.ready(demand, now) {
            Ok(()) => match self.rate.ready_beside(&mut self.ceil, demand, now) {
                Ok(()) => (Mode::CanSend, 0),
                Err(time) => (self.lacking(now), until(time, now)),
            },
            Err(time) => (Mode::CannotSend, until(time, now)),
        }
    }

    /// Bytes that may be charged without a look at what is shared, where the class itself pays or
    /// is lent to.
    #[inline]
    pub(super) fn headroom(&self, pays: bool) -> u64 {
        match pays {
            true => self.ceil.headroom().min(self.rate.headroom()),
            false => self.ceil.headroom(),
        }
    }

    /// Charges bytes to a class that pays, if it has the credit; else nothing happens.
    #[inline]
    pub(super) fn pay(&mut self, bytes: u64) -> bool {
        let credit = self.rate.credit().min(self.ceil.credit());
        // A cost is less than 2^63 where there is such a credit.
        let pays = credit >= bytes as i64 && bytes <= i64::MAX as u64;
        if pays {
            self.rate.spend(bytes);
            self.ceil.spend(bytes);
        }
        pays
    }

    /// Charges a class for what it sent, or an inner one for what was sent with its tokens or
    /// borrowed through it. One that does not pay is lent to. Returns its mode from now on, as
    /// [`mode_at`](Pots::mode_at), if it is not the one that it had.
    pub(super) fn charge(
        &mut self,
        bytes: u64,
        pays: bool,
        inner: bool,
        (mode, active): (Mode, u8),
        now: Time,
    ) -> (Mode, u64) {
        let demand = self.demand(inner, active);
        let rate = pays.then(|| self.charge_rate(bytes, demand, now));
        let ceil = match inner {
            true => self.ceil.lend(bytes, demand, now),
            false => self.ceil.charge(bytes, demand, now),
        };
        self.mode_after(rate, ceil, mode, now)
    }

    /// As [`charge`](Pots::charge), of an inner class, for what a class below it sent with tokens
    /// of its own.
    pub(super) fn charge_apart(
        &mut self,
        bytes: u64,
        (mode, _): (Mode, u8),
        now: Time,
    ) -> (Mode, u64) {
        let nobody = self.demand(true, 0);
        let rate = self.charge_rate(bytes, nobody, now);
        let ceil = self.ceil.charge(bytes, nobody, now);
        self.mode_after(Some(rate), ceil, mode, now)
    }

    /// Mode of a class that may not send with what it has. If others come first that have the
    /// same class, it waits for its turn, and does not borrow what they will not need to.
    fn lacking(&self, now: Time) -> Mode {
        match self.rate.waits_for_turn(now) {
            true => Mode::CannotSend,
            false => Mode::MayBorrow,
        }
    }

    fn mode_after(&self, rate: Option<Time>, ceil: Time, mode: Mode, now: Time) -> (Mode, u64) {
        match rate {
            _ if ceil > now => (Mode::CannotSend, until(ceil, now)),
            Some(rate) if rate > now => (self.lacking(now), until(rate, now)),
            Some(_) => (Mode::CanSend, 0),
            None => (mode, 0),
        }
    }

    fn charge_rate(&mut self, bytes: u64, demand: Demand, now: Time) -> Time {
        (self.rate).charge_beside(&mut self.ceil, bytes, demand, now)
    }

    /// Demand at a priority, in 1/16 bytes.
    pub(super) fn weight(&self, prio: usize) -> u64 {
        self.shares.weights[prio]
    }

    /// Changes the demand at a priority.
    pub(super) fn set_weight(&mut self, prio: usize, from: u64, to: u64) {
        let weight = &mut self.shares.weights[prio];
        *weight = weight.wrapping_sub(from).wrapping_add(to);
    }

    /// True if a leaf's weight is due for a look.
    pub(super) fn is_due(&self, now: Time) -> bool {
        now >= self.shares.look
    }

    /// Sets what a leaf asks for where it borrows, and its quantum there, by how its flows are
    /// spread.
    pub(super) fn weigh(&mut self, quantum: i32, now: Time) {
        self.shares.look = now.plus_nanos(LOOK);
        let part = self.ceil.part(Demand::flows(self.flows), now);
        let quantum = u64::try_from(quantum).unwrap_or(0).max(1);
        // Of flows that are spread evenly, all of it.
        let here = (quantum * part * self.rate.members().count() as u64) >> 16;
        self.quantum = i32::try_from(here.max(quantum >> 8).max(1)).unwrap_or(i32::MAX);
        self.shares.weights = [((quantum * part) >> 12).max(1); PRIOS];
    }

    /// Token units for `rate` and `ceil`: here, and where they are shared as last seen.
    #[inline]
    pub(super) fn tokens(&self) -> (i64, i64) {
        let units = |pot: &Pot| pot.seen().saturating_mul(UNIT as i64);
        (units(&self.rate), units(&self.ceil))
    }
}

fn until(time: Time, now: Time) -> u64 {
    time.nanos().saturating_sub(now.nanos())
}
