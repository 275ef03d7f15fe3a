//! `cake` and `cake_mq` as kinds.

use softnet::mem::PacketList;
use softnet::qdisc::{Cx, QdiscStats};

use super::autorate::Autorate;
use super::gate::Gate;
use super::publish::{TIN_XSTATS, XSTATS};
use super::spec::{CakeSpec, OPTIONS};
use super::tins::MAX_TINS;
use super::{Cake, Link, Tin};
use crate::account::Xstats;
use crate::filter::Filters;
use crate::handle::Handle;
use crate::qdisc::aqm::{ETHERNET_LEN, nanos};
use crate::qdisc::kind::Kind;
use crate::qdisc::option::QdiscOption;
use crate::qdisc::spec::{QdiscEnv, SpecError};

/// Frames that may wait, in frames of the device's MTU, where `memlimit` says no more
/// (`sch->limit`).
const LIMIT: u64 = 10_240;
/// Bytes of buffers that may wait at least, where a rate is given.
const LEAST_MEMORY: u64 = 4 << 20;

impl Kind for Cake {
    type Spec = CakeSpec;
    const NAME: &'static str = "cake";
    const OPTIONS: &'static [QdiscOption] = OPTIONS;
    const HAS_FILTERS: bool = true;

    fn check(spec: &CakeSpec) -> Result<(), SpecError> {
        spec.check("cake")
    }

    fn make(spec: &CakeSpec, handle: Handle, env: &QdiscEnv) -> Cake {
        let mtu = env.mtu.saturating_add(ETHERNET_LEN);
        let mut link = Link::default();
        link.set(spec);
        let xstats = Xstats::new(&XSTATS).with_parts(&TIN_XSTATS, MAX_TINS);
        let mut cake = Cake {
            handle,
            seed: env.seed,
            random: env.seed | 1,
            mtu,
            mode: spec.diffserv.mode(),
            gate: Gate::new(spec, &link, handle, mtu, env),
            link,
            filters: Filters::default(),
            tins: Box::default(),
            current: 0,
            rate: spec.bandwidth.unwrap_or(0),
            memory_limit: 0,
            most_memory: 0,
            longest: None,
            // Each of several instances sees a part only, and estimates nothing.
            autorate: Autorate::new(match env.instance {
                None => spec.bandwidth.unwrap_or(0),
                Some(_) => 0,
            }),
            spec: spec.clone(),
            stats: QdiscStats::default(),
            xstats,
        };
        cake.configure();
        cake.publish();
        cake
    }

    /// Packets that are queued stay; where it is told apart otherwise from now on, it is sorted
    /// anew. What is over a new limit is dropped from the longest flows. Time that packets have
    /// been charged for stays.
    fn change(&mut self, spec: &CakeSpec, cx: &mut Cx) {
        let before = std::mem::replace(&mut self.spec, spec.clone());
        let sorts = (before.diffserv, before.isolation) != (spec.diffserv, spec.isolation);
        let mut queued = PacketList::new();
        if sorts {
            self.take_all(before.isolation, &mut queued);
            self.mode = spec.diffserv.mode();
            self.tins = Box::default();
            self.current = 0;
        }
        self.link.set(spec);
        // An estimate goes on from where it is, as in the kernel.
        if !spec.autorate_ingress || before.bandwidth != spec.bandwidth {
            self.rate = spec.bandwidth.unwrap_or(0);
        }
        self.gate.change(spec, &self.link, self.mtu, cx.now);
        self.configure();
        while let Some(packet) = queued.pop_front() {
            self.sort(packet, cx.now);
        }
        self.enforce(cx);
        self.publish();
    }

    fn filters_mut(&mut self) -> Option<&mut Filters> {
        Some(&mut self.filters)
    }

    fn flows(&self) -> u64 {
        let active = self
            .tins
            .iter()
            .map(|tin| tin.counts.sparse + tin.counts.bulk);
        active.map(u64::from).sum()
    }

    fn xstats(&self) -> Option<&Xstats> {
        Some(&self.xstats)
    }
}

impl Cake {
    /// Gives the tins their parts of the rate, and sets the limit of memory (`cake_reconfigure`).
    pub(super) fn configure(&mut self) {
        let spec = &self.spec;
        if self.tins.is_empty() {
            let tins = std::iter::repeat_with(Tin::default);
            self.tins = tins.take(self.mode.order.len()).collect();
        }
        let (target, interval) = (nanos(spec.target()), spec.interval());
        let parts = spec.diffserv.rates(self.rate).zip(spec.diffserv.quanta());
        for (tin, (rate, quantum)) in self.tins.iter_mut().zip(parts) {
            tin.set_rate(rate, self.mtu, target, interval);
            tin.quantum = (quantum as i64).max(1);
        }
        self.gate.set_rate(self.rate);
        let most = LIMIT * u64::from(self.mtu);
        self.memory_limit = match (spec.memlimit, self.rate) {
            (Some(given), _) => u64::from(given),
            (None, 0) => most,
            (None, rate) => {
                let of_rtt = u128::from(rate) * u128::from(interval / 1000) / 250_000;
                u64::try_from(of_rtt)
                    .unwrap_or(u64::MAX)
                    .max(LEAST_MEMORY)
                    .min(most)
            }
        };
    }
}
