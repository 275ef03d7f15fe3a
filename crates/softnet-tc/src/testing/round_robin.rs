//! A small kind whose classes are added one by one, for the tests of class operations. Its leaves
//! take turns; in each a class sends `weight` frames. A packet goes to the leaf that its priority
//! or a filter names, else to the leaf with the lowest slot, else it is dropped.

use std::collections::VecDeque;

use softnet::mem::{Packet, PacketList};
use softnet::qdisc::*;
use softnet::stats::DropReason;
use softnet::time::Time;

use crate::account::{Child, Children};
use crate::filter::{Filters, Lost};
use crate::qdisc::{ClassKind, Kind};
use crate::*;

/// Parameters of a class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Weight(pub usize);

#[derive(Debug)]
pub struct RoundRobin {
    handle: Handle,
    children: Children,
    filters: Filters,
    /// By slot.
    weights: Vec<usize>,
    parents: Vec<Option<usize>>,
    /// The slots whose queues are not empty, in the order of their turns.
    active: VecDeque<usize>,
}

impl RoundRobin {
    fn leaf(&self, slot: usize) -> bool {
        let child = self.children.get(slot);
        child.is_some_and(|child| !child.is_inner())
    }

    fn classify(&self, packet: &mut Packet, cx: &mut Cx) -> Result<usize, Lost> {
        let named = Handle::from_raw(packet.priority());
        let class = match named.qdisc() == self.handle {
            true => Some(named),
            false => self.filters.classify(packet, cx).class()?,
        };
        let slot = class.and_then(|class| self.children.find(class.minor()));
        let slot = slot.filter(|&slot| self.leaf(slot));
        let first = || (0..self.weights.len()).find(|&slot| self.leaf(slot));
        slot.or_else(first)
            .ok_or(Lost::Dropped(DropReason::QdiscLimit))
    }

    fn is_active(&self, slot: usize) -> bool {
        self.active.contains(&slot)
    }
}

impl Kind for RoundRobin {
    type Spec = ();
    const NAME: &'static str = "round_robin";
    const HAS_FILTERS: bool = true;

    fn make((): &(), handle: Handle, _: &QdiscEnv) -> RoundRobin {
        RoundRobin {
            handle,
            children: Children::none(),
            filters: Filters::default(),
            weights: Vec::new(),
            parents: Vec::new(),
            active: VecDeque::new(),
        }
    }

    fn default_child((): &(), _: &QdiscEnv) -> QdiscSpec {
        QdiscSpec::Pfifo { limit: 10 }
    }

    fn children(&self) -> Option<&Children> {
        Some(&self.children)
    }

    fn children_mut(&mut self) -> Option<&mut Children> {
        Some(&mut self.children)
    }

    fn filters_mut(&mut self) -> Option<&mut Filters> {
        Some(&mut self.filters)
    }

    fn child_changed(&mut self, slot: usize, _: &mut Cx) {
        let empty = self.children.get(slot).is_none_or(Child::is_empty);
        match (empty, self.is_active(slot)) {
            (true, true) => self.active.retain(|&active| active != slot),
            (false, false) => self.active.push_back(slot),
            _ => {}
        }
    }
}

impl ClassKind for RoundRobin {
    type Class = Weight;
    const CLASSES: Classes = Classes {
        nested: true,
        filters: true,
        default: |_| ClassSpec::RoundRobin(Weight(1)),
        ..Classes::FLAT
    };

    fn check_class(&Weight(weight): &Weight) -> Result<(), SpecError> {
        let error = SpecError::parameter("round_robin", "weight", "must not be 0");
        if weight > 0 { Ok(()) } else { Err(error) }
    }

    fn add_class(
        &mut self,
        slot: usize,
        _: u16,
        parent: Option<usize>,
        &Weight(weight): &Weight,
        moved: &mut PacketList,
        cx: &mut Cx,
    ) {
        assert!(self.leaf(slot) && self.children.get(slot).unwrap().is_empty());
        let len = self.weights.len().max(slot + 1);
        self.weights.resize(len, 0);
        self.parents.resize(len, None);
        (self.weights[slot], self.parents[slot]) = (weight, parent);
        if let Some(parent) = parent {
            assert!(!self.leaf(parent));
            self.active.retain(|&active| active != parent);
        }
        self.enqueue(moved, cx);
    }

    fn change_class(&mut self, slot: usize, &Weight(weight): &Weight, _: &mut Cx) {
        self.weights[slot] = weight;
    }

    fn delete_class(&mut self, slot: usize, moved: &mut PacketList, cx: &mut Cx) {
        assert!(!self.leaf(slot));
        self.active.retain(|&active| active != slot);
        self.enqueue(moved, cx);
    }
}

impl Qdisc for RoundRobin {
    fn enqueue(&mut self, packets: &mut PacketList, cx: &mut Cx) -> Verdict {
        let mut verdict = Verdict::Queued;
        while let Some(mut packet) = packets.pop_front() {
            let slot = match self.classify(&mut packet, cx) {
                Ok(slot) => slot,
                Err(lost) => {
                    let lost = lost.settle(packet, &mut self.children.stats, cx);
                    verdict = verdict.max(lost);
                    continue;
                }
            };
            let mut one = PacketList::from(packet);
            verdict = verdict.max(self.children.enqueue(slot, &mut one, cx));
            self.child_changed(slot, cx);
        }
        verdict
    }

    fn dequeue(&mut self, budget: usize, out: &mut PacketList, cx: &mut Cx) -> Next {
        let end = self.children.stats.packets + budget as u64;
        let mut earliest: Option<Time> = None;
        // Turns in which nothing left.
        let mut idle = 0;
        while idle < self.active.len() {
            let slot = self.active[0];
            let left = end.saturating_sub(self.children.stats.packets) as usize;
            if left == 0 {
                return Next::Ready;
            }
            // What is not active is empty, and the other way round: BUG-HTB-1, BUG-HTB-2.
            assert!(!self.children.get(slot).unwrap().is_empty());
            let before = WireSum::from(&*out);
            let budget = left.min(self.weights[slot]);
            let next = self.children.dequeue(slot, budget, out, cx);
            let after = WireSum::from(&*out);
            let mut sum = after;
            (sum.bytes, sum.packets) =
                (after.bytes - before.bytes, after.packets - before.packets);
            let mut above = self.parents[slot];
            while let Some(parent) = above {
                let counters = self.children.get(parent).unwrap().counters();
                counters.count_sent(sum);
                above = self.parents[parent];
            }
            self.active.rotate_left(1);
            if self.children.get(slot).unwrap().is_empty() {
                self.active.pop_back();
            }
            idle = if sum.packets > 0 { 0 } else { idle + 1 };
            match next {
                Next::Ready | Next::Idle => {}
                Next::At(time) => earliest = Some(earliest.map_or(time, |e| e.min(time))),
            }
        }
        match earliest {
            _ if self.active.is_empty() => Next::Idle,
            Some(time) => Next::At(time),
            None => Next::Ready,
        }
    }

    fn drain(&mut self, out: &mut PacketList) {
        self.children.drain(out);
        self.active.clear();
    }

    fn wants_enqueue_time(&self) -> bool {
        self.children.wants_enqueue_time()
    }

    fn stats(&self) -> &QdiscStats {
        &self.children.stats
    }
}
