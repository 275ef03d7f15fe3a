//! Instances of a tree in virtual time: each leaf of each has flows that always have packets, or
//! none. What the instances run late by is random.

use std::collections::BTreeMap;
use std::sync::Arc;

use softnet::qdisc::{Next, WireSize};
use softnet::time::Time;

use super::HtbClassSpec;
use super::pots::Sharing;
use super::scheduler::Scheduler;
use super::turn::Taken;
use crate::account::{ClassCounters, Sent};
use crate::handle::Handle;
use crate::rate::{Instance, SharedRates};

pub(super) const MS: u64 = 1_000_000;
pub(super) const SECOND: u64 = 1_000 * MS;
/// The length of each packet.
pub(super) const PACKET: u64 = 1500;

/// A packet or several that were sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Departure {
    pub(super) time: u64,
    pub(super) core: usize,
    pub(super) minor: u16,
    pub(super) bytes: u64,
}

/// The packets of a leaf.
#[derive(Clone, Copy, Debug)]
struct Supply {
    /// Wire packets of a frame.
    packets: u64,
    /// Nanoseconds from one frame to the next, which is held back meanwhile. 0: none is.
    pace: u64,
    /// When the next is let go.
    next: u64,
}

struct Core {
    scheduler: Scheduler,
    counters: BTreeMap<u16, Arc<ClassCounters>>,
    /// Flows of each leaf, by slot.
    flows: Vec<u16>,
    /// Supply of each leaf, by slot.
    supply: Vec<Supply>,
    next: u64,
    runs: u64,
    /// Nanoseconds by which a run is late, at most.
    delay: u64,
    /// One in so many runs is late by 5 ms. 0: none.
    stalls: u64,
}

/// Instances of a tree.
pub(super) struct Cores {
    cores: Vec<Core>,
    pub(super) specs: BTreeMap<u16, HtbClassSpec>,
    pub(super) parents: BTreeMap<u16, Option<u16>>,
    pub(super) sent: Vec<Departure>,
    random: u64,
}

/// Sharing of an instance, with packets of [`PACKET`] bytes.
pub(super) fn sharing(index: usize, rates: &Arc<SharedRates>) -> Sharing {
    Sharing {
        instance: Instance {
            index,
            rates: rates.clone(),
        },
        handle: Handle::new(1, 0),
        unit: PACKET,
    }
}

impl Cores {
    pub(super) fn new(count: usize, seed: u64) -> Cores {
        let rates = Arc::new(SharedRates::new(count));
        let core = |index| Core {
            scheduler: Scheduler::new(10, Some(sharing(index, &rates))),
            counters: BTreeMap::new(),
            flows: Vec::new(),
            supply: Vec::new(),
            next: u64::MAX,
            runs: 0,
            delay: 60_000,
            stalls: 0,
        };
        Cores {
            cores: (0..count).map(core).collect(),
            specs: BTreeMap::new(),
            parents: BTreeMap::new(),
            sent: Vec::new(),
            random: seed,
        }
    }

    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.random = self
            .random
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.random >> 33) % limit.max(1)
    }

    pub(super) fn count(&self) -> usize {
        self.cores.len()
    }

    /// Runs of a core so far.
    pub(super) fn runs(&self, core: usize) -> u64 {
        self.cores[core].runs
    }

    pub(super) fn set_delays(&mut self, core: usize, delay: u64, stalls: u64) {
        (self.cores[core].delay, self.cores[core].stalls) = (delay, stalls);
    }

    pub(super) fn add(&mut self, minor: u16, parent: Option<u16>, spec: HtbClassSpec) {
        for core in &mut self.cores {
            let above = parent.map(|minor| core.scheduler.find(minor).unwrap());
            let slot = core.flows.len();
            core.flows.push(0);
            core.supply.push(Supply {
                packets: 1,
                pace: 0,
                next: 0,
            });
            let counters = Arc::<ClassCounters>::default();
            core.counters.insert(minor, counters.clone());
            let now = Time::ZERO;
            core.scheduler.add(slot, minor, above, &spec, counters, now);
        }
        self.specs.insert(minor, spec);
        self.parents.insert(minor, parent);
    }

    /// Each core in turn, at this time.
    pub(super) fn change(&mut self, minor: u16, spec: HtbClassSpec, now: u64) {
        for core in &mut self.cores {
            let slot = core.scheduler.find(minor).unwrap();
            core.scheduler.change(slot, &spec, Time(now));
        }
        self.specs.insert(minor, spec);
    }

    /// From now on a leaf has so many flows at a core.
    pub(super) fn set_flows(&mut self, core: usize, minor: u16, flows: u16, now: u64) {
        let core = &mut self.cores[core];
        let slot = core.scheduler.find(minor).unwrap();
        core.flows[slot] = flows;
        match flows {
            0 => core.scheduler.deactivate(slot),
            _ => core.scheduler.activate(slot),
        }
        core.next = core.next.min(now);
    }

    /// From now on each frame of a leaf has so many packets, and it lets one go in so many
    /// nanoseconds; 0: as it is asked to.
    pub(super) fn set_supply(&mut self, core: usize, minor: u16, packets: u64, pace: u64) {
        let core = &mut self.cores[core];
        let slot = core.scheduler.find(minor).unwrap();
        core.supply[slot] = Supply {
            packets,
            pace,
            next: 0,
        };
    }

    /// Bytes of the longest frame.
    pub(super) fn longest(&self) -> u64 {
        let supplies = self.cores.iter().flat_map(|core| &core.supply);
        supplies
            .map(|supply| supply.packets * PACKET)
            .max()
            .unwrap_or(PACKET)
    }

    /// A leaf with flows at each core.
    pub(super) fn load(&mut self, minor: u16, flows: &[u16]) {
        for (core, &flows) in flows.iter().enumerate() {
            self.set_flows(core, minor, flows, SECOND);
        }
    }

    pub(super) fn run_until(&mut self, end: u64) {
        while let Some(core) = (0..self.count()).min_by_key(|&core| self.cores[core].next)
            && self.cores[core].next < end
        {
            let now = self.cores[core].next;
            self.cores[core].runs += 1;
            let next = self.run(core, Time(now));
            let (delay, stalls) = (self.cores[core].delay, self.cores[core].stalls);
            self.cores[core].scheduler.announce(next, Time(now));
            let late = match stalls > 0 && self.below(stalls) == 0 {
                true => 5 * MS,
                false => self.below(delay + 1),
            };
            self.cores[core].next = match next {
                Next::Idle => u64::MAX,
                // It takes a microsecond to send them.
                Next::Ready => now + 1000 + if late == 5 * MS { late } else { 0 },
                Next::At(time) => {
                    assert!(time.nanos() > now, "asks to come back at once");
                    time.nanos().saturating_add(late)
                }
            };
        }
    }

    /// Sends at most 64 packets.
    fn run(&mut self, index: usize, now: Time) -> Next {
        let mut left = 64_u64;
        let Core {
            scheduler,
            flows,
            supply,
            ..
        } = &mut self.cores[index];
        let mut held = u64::MAX;
        while left > 0 {
            let mut sent = None;
            let served = scheduler.serve(now, |scheduler, turn| {
                let flows = flows[turn.leaf];
                assert!(flows > 0, "a leaf without packets");
                let supply = &mut supply[turn.leaf];
                if supply.next > now.nanos() {
                    held = held.min(supply.next);
                    return Taken::Held;
                }
                let mut frames = scheduler.allowed(turn, now) / (PACKET * supply.packets) + 1;
                frames = frames.min(left.div_ceil(supply.packets));
                if supply.pace > 0 {
                    frames = 1;
                    supply.next = now.nanos() + supply.pace;
                }
                let packets = frames * supply.packets;
                sent = Some((turn.leaf, packets));
                let bytes = packets * PACKET;
                Taken::Sent(Sent {
                    frames,
                    size: WireSize {
                        packets,
                        bytes,
                        each: PACKET,
                    },
                    emptied: false,
                    flows,
                })
            });
            let Some((leaf, packets)) = sent.filter(|_| served) else {
                return match flows.iter().any(|&flows| flows > 0) {
                    true => Next::At(scheduler.next_event().min(Time(held))),
                    false => Next::Idle,
                };
            };
            left = left.saturating_sub(packets);
            self.sent.push(Departure {
                time: now.nanos(),
                core: index,
                minor: scheduler.class(leaf).minor,
                bytes: packets * PACKET,
            });
        }
        Next::Ready
    }

    /// Bytes of a leaf that a core sent from a time on.
    pub(super) fn bytes(&self, core: usize, minor: u16, from: u64) -> f64 {
        let sent = self.sent.iter().rev().take_while(|sent| sent.time >= from);
        let of = sent.filter(|sent| (sent.core, sent.minor) == (core, minor));
        of.map(|sent| sent.bytes).sum::<u64>() as f64
    }

    /// Bytes of all leaves that were sent from a time on.
    pub(super) fn total(&self, from: u64) -> f64 {
        let sent = self.sent.iter().rev().take_while(|sent| sent.time >= from);
        sent.map(|sent| sent.bytes).sum::<u64>() as f64
    }

    /// Classes on the way up from this one, which is the first.
    pub(super) fn path(&self, minor: u16) -> Vec<u16> {
        let above = |minor: &u16| self.parents.get(minor).copied().flatten();
        std::iter::successors(Some(minor), above).collect()
    }

    pub(super) fn leaves(&self) -> Vec<u16> {
        let minors = self.specs.keys().copied();
        let is_leaf = |minor: &u16| !self.parents.values().any(|&p| p == Some(*minor));
        minors.filter(is_leaf).collect()
    }

    /// The most that was sent below a class beyond a rate in any window, in bytes.
    pub(super) fn worst_window(&self, minor: u16, rate: u64) -> u64 {
        let below: Vec<u16> = (self.specs.keys().copied())
            .filter(|&of| self.path(of).contains(&minor))
            .collect();
        let (mut level, mut last, mut worst) = (0u128, 0, 0);
        for sent in self.sent.iter().filter(|sent| below.contains(&sent.minor)) {
            level = level.saturating_sub(u128::from(sent.time - last) * u128::from(rate));
            last = sent.time;
            level += u128::from(sent.bytes) * u128::from(SECOND);
            worst = worst.max(level);
        }
        u64::try_from(worst / u128::from(SECOND)).unwrap()
    }

    /// INV-Q-12, at each core.
    pub(super) fn check(&mut self) {
        for core in &mut self.cores {
            core.scheduler.check_asked();
            for &minor in self.specs.keys() {
                let slot = core.scheduler.find(minor).unwrap();
                let frame = (core.supply[slot].packets * PACKET) as i32;
                let deficit = &core.scheduler.class(slot).deficit;
                let owes = deficit[1..].iter().all(|&bytes| bytes >= -frame);
                assert!(owes, "{minor}: {deficit:?}");
            }
        }
    }
}
