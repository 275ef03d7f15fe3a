//! Classes that come, go and change at random while packets pass.

use proptest::prelude::*;

use super::super::curve::{NEVER, ticks, time_of};
use super::super::scheduler::{Choice, Scheduler};
use super::*;
use crate::qdisc::{ClassKind, Hfsc};

/// Classes that there are at most: with the root as many levels as there can be, if each is below
/// another one.
const MOST: usize = 9;
/// Length of the next packet of a leaf, as the scheduler is told.
const LEN: u64 = 1000;

/// Numbers choose among the classes that there are then.
#[derive(Clone, Debug)]
enum Op {
    Enqueue(usize),
    Dequeue(u64),
    Wait(u64),
    Change(usize, HfscClassSpec),
    Empty(usize),
    Add(usize, HfscClassSpec),
    Remove(usize),
    Reset,
}

fn curves() -> impl Strategy<Value = HfscClassSpec> {
    let curve = || {
        let fields = (0..100_000_u32, 0..50_000_u32, 1000..100_000_u32);
        fields.prop_map(|(m1, d, m2)| ServiceCurve { m1, d, m2 })
    };
    let option = |weight| prop::option::weighted(weight, curve());
    let rt_alone = prop::bool::weighted(0.25);
    (option(0.5), curve(), option(0.5), rt_alone).prop_map(|(rt, curve, ul, rt_alone)| {
        let (rt, ls) = match rt_alone {
            true => (Some(curve), None),
            false => (rt, Some(curve)),
        };
        HfscClassSpec { rt, ls, ul }
    })
}

#[derive(Clone, Debug)]
struct Node {
    slot: usize,
    parent: usize,
    spec: HfscClassSpec,
    queued: u32,
}

/// A scheduler, and the classes that it should know.
#[derive(Debug)]
struct Hierarchy {
    scheduler: Scheduler,
    /// Each one after the one that it is below.
    nodes: Vec<Node>,
    /// Slots of classes that are gone; the last one is taken next.
    free: Vec<usize>,
    now: Time,
}

impl Hierarchy {
    fn new() -> Hierarchy {
        Hierarchy {
            scheduler: Scheduler::new(0),
            nodes: Vec::new(),
            free: Vec::new(),
            now: Time(SECOND),
        }
    }

    /// The same classes, in a scheduler that has done nothing yet.
    fn anew(&self) -> Hierarchy {
        let mut scheduler = Scheduler::new(self.scheduler.root);
        for node in &self.nodes {
            scheduler.add(node.slot, node.parent, &node.spec);
        }
        Hierarchy {
            scheduler,
            nodes: self.nodes.clone(),
            free: self.free.clone(),
            now: self.now,
        }
    }

    fn is_leaf(&self, slot: usize) -> bool {
        self.nodes.iter().all(|node| node.parent != slot)
    }

    /// Where one of the leaves is among the nodes.
    fn leaf(&self, number: usize) -> Option<usize> {
        let all = 0..self.nodes.len();
        let leaves: Vec<usize> = all
            .filter(|&at| self.is_leaf(self.nodes[at].slot))
            .collect();
        let chosen = number.checked_rem(leaves.len())?;
        Some(leaves[chosen])
    }

    /// As the qdisc does it: what was a leaf has no packets first, and shares from then on.
    fn add(&mut self, parent: usize, spec: &HfscClassSpec) {
        let next = self.nodes.len() + 1;
        let slot = self.free.pop().unwrap_or(next);
        if let Some(above) = self.nodes.iter_mut().find(|node| node.slot == parent) {
            above.queued = 0;
            Hfsc::become_inner(&mut above.spec);
        }
        self.scheduler.deactivate(parent, self.now);
        self.scheduler.add(slot, parent, spec);
        self.nodes.push(Node {
            slot,
            parent,
            spec: spec.clone(),
            queued: 0,
        });
    }

    fn change(&mut self, at: usize, spec: &HfscClassSpec) {
        let is_leaf = self.is_leaf(self.nodes[at].slot);
        let node = &mut self.nodes[at];
        node.spec = spec.clone();
        if !is_leaf {
            Hfsc::become_inner(&mut node.spec);
        }
        let next = (node.queued > 0).then_some(LEN);
        self.scheduler.change(node.slot, &node.spec, next, self.now);
    }

    /// Returns which leaf was served, if one was.
    fn run(&mut self, op: &Op) -> Result<Option<Choice>, TestCaseError> {
        let mut choice = None;
        match op {
            Op::Enqueue(number) => {
                if let Some(at) = self.leaf(*number) {
                    let node = &mut self.nodes[at];
                    node.queued += 1;
                    self.scheduler.activate(node.slot, LEN, self.now);
                }
            }
            Op::Dequeue(len) => choice = self.dequeue(*len)?,
            Op::Wait(nanos) => self.now = self.now.plus_nanos(*nanos),
            Op::Change(number, spec) => {
                if let Some(at) = number.checked_rem(self.nodes.len()) {
                    self.change(at, spec);
                }
            }
            Op::Empty(number) => {
                if let Some(at) = self.leaf(*number) {
                    let node = &mut self.nodes[at];
                    node.queued = 0;
                    self.scheduler.deactivate(node.slot, self.now);
                }
            }
            Op::Add(number, spec) if self.nodes.len() < MOST => {
                let parent = match number % (self.nodes.len() + 1) {
                    0 => self.scheduler.root,
                    number => self.nodes[number - 1].slot,
                };
                self.add(parent, spec);
            }
            Op::Add(..) => {}
            Op::Remove(number) => {
                if let Some(at) = self.leaf(*number) {
                    let node = self.nodes.remove(at);
                    self.scheduler.deactivate(node.slot, self.now);
                    let parent = self.scheduler.remove(node.slot);
                    prop_assert_eq!(parent, node.parent);
                    self.free.push(node.slot);
                }
            }
            Op::Reset => {
                self.nodes.iter_mut().for_each(|node| node.queued = 0);
                self.scheduler.reset();
            }
        }
        let has_packets = |slot: usize| {
            let mut nodes = self.nodes.iter();
            nodes.any(|node| node.slot == slot && node.queued > 0)
        };
        self.scheduler.assert_consistent(has_packets);
        Ok(choice)
    }

    /// Serves the leaf that is next, or waits until there is one.
    fn dequeue(&mut self, len: u64) -> Result<Option<Choice>, TestCaseError> {
        let choice = self.scheduler.choose(self.now);
        prop_assert_eq!(choice, self.expected());
        let Some(choice) = choice else {
            let next = self.scheduler.next_event();
            prop_assert_eq!(next, self.expected_event());
            if self.nodes.iter().any(|node| node.queued > 0) {
                prop_assert!(next > self.now && next < Time::MAX);
                self.now = next;
                let choice = self.scheduler.choose(next);
                prop_assert!(choice.is_some(), "it said that one is due");
                prop_assert_eq!(choice, self.expected());
            }
            return Ok(None);
        };
        let mut nodes = self.nodes.iter_mut();
        let node = nodes.find(|node| node.slot == choice.leaf).unwrap();
        node.queued -= 1;
        let next = (node.queued > 0).then_some(LEN);
        self.scheduler.charge(choice, len, next, self.now);
        Ok(Some(choice))
    }
}

/// The choice that follows from the times of all classes, looked at one after the other.
impl Hierarchy {
    /// Leaves with packets and a real-time curve.
    fn real_time(&self) -> impl Iterator<Item = &Node> {
        let nodes = self.nodes.iter();
        nodes.filter(|node| node.queued > 0 && node.spec.rt.is_some())
    }

    /// The classes directly below one among which link sharing chooses.
    fn sharing(&self, slot: usize) -> impl Iterator<Item = &Node> {
        let nodes = self.nodes.iter();
        nodes.filter(move |node| node.parent == slot && self.shares(node))
    }

    fn shares(&self, node: &Node) -> bool {
        let is_sharing_leaf = node.queued > 0 && node.spec.ls.is_some();
        is_sharing_leaf || self.sharing(node.slot).next().is_some()
    }

    /// The tick from which on a class may be served: by its own limit, and that of one below.
    fn fit(&self, node: &Node) -> u64 {
        let below = self.sharing(node.slot).map(|below| self.fit(below)).min();
        let own = self.scheduler.class(node.slot).own_fit;
        own.max(below.unwrap_or(0))
    }

    /// The leaf to serve now.
    fn expected(&self) -> Option<Choice> {
        let tick = ticks(self.now);
        let of = |slot: usize| self.scheduler.class(slot);
        let eligible = self
            .real_time()
            .filter(|node| of(node.slot).eligible <= tick);
        let first = eligible.min_by_key(|node| {
            let class = of(node.slot);
            (class.deadline, class.eligible, class.eligible_number)
        });
        if let Some(node) = first {
            return Some(Choice {
                leaf: node.slot,
                real_time: true,
            });
        }
        let mut at = self.scheduler.root;
        while !self.is_leaf(at) {
            let fit = self.sharing(at).filter(|node| self.fit(node) <= tick);
            let first = fit.min_by_key(|node| {
                let class = of(node.slot);
                (class.virtual_time, class.virtual_number)
            });
            at = first?.slot;
        }
        (at != self.scheduler.root).then_some(Choice {
            leaf: at,
            real_time: false,
        })
    }

    /// When a leaf is to be served next, if none is now.
    fn expected_event(&self) -> Time {
        let eligible = self
            .real_time()
            .map(|node| self.scheduler.class(node.slot).eligible);
        let fit = self.sharing(self.scheduler.root).map(|node| self.fit(node));
        time_of(eligible.chain(fit).min().unwrap_or(NEVER))
    }
}

proptest! {
    /// Each class is where it should be after each operation; who is chosen is who comes first
    /// among all, and while one has packets one is chosen now or at the time that is said. After a
    /// reset it is as if nothing had ever been sent.
    #[test]
    fn the_scheduler_finds_each_class(
        specs in prop::collection::vec(curves(), 8),
        ops in prop::collection::vec(
            prop_oneof![
                30 => (0..64_usize).prop_map(Op::Enqueue),
                30 => (60..1600_u64).prop_map(Op::Dequeue),
                15 => (1..50_000_000_u64).prop_map(Op::Wait),
                10 => (0..64_usize, curves()).prop_map(|(number, spec)| Op::Change(number, spec)),
                5 => (0..64_usize).prop_map(Op::Empty),
                7 => (0..64_usize, curves()).prop_map(|(number, spec)| Op::Add(number, spec)),
                7 => (0..64_usize).prop_map(Op::Remove),
                1 => Just(Op::Reset),
            ],
            1..200,
        ),
    ) {
        // Slots 1 and 2 are below the root, 3 to 8 below those and it.
        let mut hierarchy = Hierarchy::new();
        for (parent, spec) in [0, 1, 1, 1, 2, 2, 2, 0].into_iter().zip(&specs) {
            hierarchy.add(parent, spec);
        }
        // Begun at the last reset.
        let mut fresh: Option<Hierarchy> = None;
        for op in &ops {
            let choice = hierarchy.run(op)?;
            if let Op::Reset = op {
                fresh = Some(hierarchy.anew());
            } else if let Some(fresh) = &mut fresh {
                prop_assert_eq!(fresh.run(op)?, choice);
            }
        }
    }
}
