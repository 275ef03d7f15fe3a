//! Fate of the packets of each class, told from how the classes' numbers change. A packet is
//! counted at the lowest class that counts it; those above get their sums when somebody asks.
//! Packets of a flow are looked for first where the one before was, so that only the classes on
//! its path are touched.

use std::collections::BTreeMap;
use std::sync::Arc;

use softnet::mem::Packet;
use softnet::stats::{DropReason, Dropped};
use softnet::time::Time;

use super::instances::Instances;
use super::shares::Shares;
use super::times::Times;
use crate::account::ClassCounters;
use crate::handle::Handle;

/// Packets that left a class, and those that were dropped there.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    /// Wire packets dropped, by reason.
    pub(super) drops: BTreeMap<DropReason, u64>,
    /// From each frame's arrival to its departure from the tree.
    pub(super) times: Times,
    /// Wire packets that left with a congestion mark.
    pub(super) marked: u64,
}

impl Tally {
    pub(super) fn add(&mut self, other: &Tally) {
        for (&reason, n) in &other.drops {
            *self.drops.entry(reason).or_default() += n;
        }
        self.times.merge(&other.times);
        self.marked += other.marked;
    }

    fn clear(&mut self) {
        self.drops.clear();
        self.times.clear();
        self.marked = 0;
    }
}

/// One class, or the root.
#[derive(Debug)]
struct Class {
    handle: Handle,
    parent: usize,
    children: Vec<usize>,
    /// Counters of the class in each instance; none of the root, and of a class that is a queue.
    counters: Vec<Arc<ClassCounters>>,
    /// Packets that left and frames that were dropped, as far as they are attributed.
    seen: (u64, u64),
    /// Tallies since the window began, and before.
    now: Tally,
    before: Tally,
}

impl Class {
    /// Packets that left and frames that were dropped, now.
    // Into the four calls that a departure makes.
    #[inline(always)]
    fn numbers(&self, tree: &Instances) -> (u64, u64) {
        match &self.counters[..] {
            [one] => one.left_and_refused(),
            [] if self.handle == Handle::ROOT => tree.left_and_refused(),
            _ => self.numbers_of_several(tree),
        }
    }

    fn numbers_of_several(&self, tree: &Instances) -> (u64, u64) {
        if self.counters.is_empty() {
            // A class of `mq` is the queue of that number.
            let queue = usize::from(self.handle.minor()).checked_sub(1);
            let queue = queue.filter(|&queue| queue < tree.cpus.len());
            return match queue.map(|queue| tree.stats(queue)) {
                Some(stats) => (stats.packets, stats.drops),
                None => tree.left_and_refused(),
            };
        }
        let all = self.counters.iter().map(|of| of.left_and_refused());
        all.fold((0, 0), |sum, of| (sum.0 + of.0, sum.1 + of.1))
    }
}

/// The classes of a tree, each before those below it; the root is the first.
#[derive(Debug, Default)]
pub(super) struct Classes {
    all: Vec<Class>,
    pub(super) shares: Shares,
}

/// Span of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Span {
    Window,
    All,
}

impl Classes {
    /// The classes of a tree, with the tallies that `self` has of them. Those of classes that are
    /// gone become the next one's above that is there.
    pub(super) fn rebuild(&mut self, tree: &Instances) {
        let old = std::mem::take(&mut self.all);
        let mut places: BTreeMap<Handle, usize> = BTreeMap::new();
        for of in tree.classes() {
            let place = self.all.len();
            let qdisc = tree.tree().spec().node(of.parent).map(|node| node.parent);
            let above = places.get(&of.parent).or_else(|| places.get(&qdisc?));
            let parent = above.copied().unwrap_or(0);
            let counters = tree.tree().counters.get(&of.class);
            self.all.push(Class {
                handle: of.class,
                parent,
                children: Vec::new(),
                counters: counters.map_or_else(Vec::new, |counted| counted.instances.clone()),
                seen: (of.stats.packets, of.stats.drops),
                now: Tally::default(),
                before: Tally::default(),
            });
            places.insert(of.class, place);
            if place != 0 {
                self.all[parent].children.push(place);
            }
        }
        let moved: Vec<usize> = (0..old.len())
            .map(|mut place| {
                loop {
                    match places.get(&old[place].handle) {
                        Some(&place) => break place,
                        None if place == 0 => break 0,
                        None => place = old[place].parent,
                    }
                }
            })
            .collect();
        self.shares.moved(&moved);
        for (class, place) in old.into_iter().zip(moved) {
            self.all[place].now.add(&class.now);
            self.all[place].before.add(&class.before);
        }
    }

    fn has_sent(&self, place: usize, tree: &Instances) -> bool {
        let class = &self.all[place];
        class.numbers(tree).0 != class.seen.0
    }

    /// Takes note of a frame that left now. Returned is the lowest class that counts it.
    pub(super) fn left(
        &mut self,
        tree: &Instances,
        packet: &Packet,
        is_marked: bool,
        now: Time,
    ) -> Handle {
        let flow = self.shares.flow(packet.flow_hash().unwrap_or(0));
        let last = self.shares.place(flow);
        let mut place = if self.has_sent(last, tree) { last } else { 0 };
        while let Some(&below) = self.all[place]
            .children
            .iter()
            .find(|&&below| self.has_sent(below, tree))
        {
            place = below;
        }
        self.shares.sent(flow, place, packet.wire_len());
        let tally = &mut self.all[place].now;
        let stay = now.0.saturating_sub(packet.timestamp().0);
        tally.times.record(stay);
        if is_marked {
            tally.marked += packet.wire_packets();
        }
        self.each_above(place, |class| class.seen.0 = class.numbers(tree).0);
        self.all[place].handle
    }

    /// Takes note of what was dropped now.
    pub(super) fn dropped(&mut self, tree: &Instances, dropped: &Dropped) {
        if dropped.wire_packets() == 0 || self.new_drops(0, tree) == 0 {
            return;
        }
        let mut counts = *dropped.counts();
        let first = dropped.packets().iter().next();
        let hash = first.and_then(Packet::flow_hash).unwrap_or(0);
        let last = self.shares.place(self.shares.known(hash));
        let is_leaf = self.all[last].children.is_empty();
        let mut places = Vec::new();
        if is_leaf && self.new_drops(last, tree) == self.new_drops(0, tree) {
            self.take_drops(last, tree, u64::MAX, &mut counts);
        } else {
            self.find_drops(0, tree, &mut places);
            let count = places.len();
            for (number, (place, drops)) in places.into_iter().enumerate() {
                // A frame may stand for several packets: the last one gets what is left.
                let drops = if number + 1 == count { u64::MAX } else { drops };
                self.take_drops(place, tree, drops, &mut counts);
            }
        }
    }

    fn new_drops(&self, place: usize, tree: &Instances) -> u64 {
        let class = &self.all[place];
        class.numbers(tree).1.wrapping_sub(class.seen.1)
    }

    /// The classes at or below one that dropped something, with the number of frames that none
    /// below them did.
    fn find_drops(&self, place: usize, tree: &Instances, found: &mut Vec<(usize, u64)>) {
        let mut own = self.new_drops(place, tree);
        for &below in &self.all[place].children {
            let drops = self.new_drops(below, tree);
            if drops != 0 {
                own = own.saturating_sub(drops);
                self.find_drops(below, tree, found);
            }
        }
        if own != 0 {
            found.push((place, own));
        }
    }

    /// Gives a class so many of the packets that were dropped.
    fn take_drops(
        &mut self,
        place: usize,
        tree: &Instances,
        mut drops: u64,
        counts: &mut [u32; DropReason::ALL.len()],
    ) {
        for (&reason, count) in DropReason::ALL.iter().zip(counts) {
            let taken = u64::from(*count).min(drops);
            if taken != 0 {
                *self.all[place].now.drops.entry(reason).or_default() += taken;
                drops -= taken;
                *count -= taken as u32;
            }
        }
        self.each_above(place, |class| class.seen.1 = class.numbers(tree).1);
    }

    /// From a class to the root.
    #[inline]
    fn each_above(&mut self, mut place: usize, mut f: impl FnMut(&mut Class)) {
        loop {
            let class = &mut self.all[place];
            f(class);
            if place == 0 {
                return;
            }
            place = class.parent;
        }
    }

    /// The tallies of each class with those below it, and Jain's index of its flows.
    pub(super) fn sums(&self, span: Span) -> BTreeMap<Handle, (Tally, f64)> {
        let mut sums: Vec<Tally> = self.all.iter().map(|class| class.now.clone()).collect();
        if span == Span::All {
            let with = sums.iter_mut().zip(&self.all);
            with.for_each(|(sum, class)| sum.add(&class.before));
        }
        for place in (1..sums.len()).rev() {
            let below = std::mem::take(&mut sums[place]);
            sums[self.all[place].parent].add(&below);
            sums[place] = below;
        }
        let fair = self.shares.fair(span, self.all.len(), |place| {
            (place != 0).then(|| self.all[place].parent)
        });
        let handles = self.all.iter().map(|class| class.handle);
        handles.zip(sums.into_iter().zip(fair)).collect()
    }

    /// Begins another window.
    pub(super) fn turn(&mut self) {
        for class in &mut self.all {
            if class.now.times.frames() != 0 || !class.now.drops.is_empty() {
                class.before.add(&class.now);
                class.now.clear();
            }
        }
        self.shares.turn();
    }
}
