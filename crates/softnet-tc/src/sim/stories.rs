//! Packets whose stories are told, from their arrival to their end. What passes a packet is told
//! from sums as it comes and as it ends: a departure costs the same however many wait.

use std::collections::HashMap;
use std::sync::Arc;

use softnet::mem::{Packet, PacketList};
use softnet::stats::{DropReason, Dropped};
use softnet::time::Time;

use super::departures::Departures;
use super::instances::Instances;
use super::story::{Before, Fate, Story};
use crate::filter::FilterSpec;
use crate::handle::Handle;

/// Sums of the times at which somebody waits whose story is told.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    /// Frames that left.
    departures: u64,
    /// Nanoseconds in which the link was sending, and in which the tree let nothing leave.
    link: u64,
    held: u64,
}

/// Stories that are told.
#[derive(Debug, Default)]
pub(super) struct Stories {
    /// Packets that arrived.
    arrived: u64,
    /// Number of the packet whose story is kept; 0: of none.
    asked: u64,
    kept: Option<Story>,
    /// Stories of all packets are told.
    pub(super) all: bool,
    /// If so, those of the packets that left and were not taken yet.
    pub(super) left: Vec<Option<Story>>,
    /// Packets in the tree by their place, with the sums as they came.
    waiting: HashMap<usize, (Story, Sums)>,
    sums: Sums,
    departures: Departures,
    /// Filters of the tree, shared by the stories.
    filters: Vec<Arc<FilterSpec>>,
}

/// The end of a packet's data: it stays where it is as headers come and go.
fn place(packet: &Packet) -> usize {
    packet.data().as_ptr_range().end.addr()
}

impl Stories {
    /// Keeps the story of the packet that arrives as the `number`th from now on.
    pub(super) fn ask(&mut self, number: u64) {
        self.asked = match number {
            0 => 0,
            number => self.arrived.saturating_add(number),
        };
        self.kept = None;
    }

    /// The story that is kept, as far as it has come.
    pub(super) fn kept(&self) -> Option<&Story> {
        let mut waiting = self.waiting.values().map(|(story, _)| story);
        let waits = || waiting.find(|story| story.number == self.asked);
        self.kept.as_ref().or_else(waits)
    }

    /// True if no packet waits whose story is told.
    #[inline]
    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_empty()
    }

    /// A packet arrives. If its story is told, what [`enqueued`](Stories::enqueued) has to know.
    #[inline]
    pub(super) fn arrived(
        &mut self,
        packet: &Packet,
        now: Time,
        tree: &Instances,
    ) -> Option<(usize, Before)> {
        self.arrived += 1;
        let is_told = self.all || self.arrived == self.asked;
        is_told.then(|| self.begin(packet, now, tree))
    }

    #[cold]
    fn begin(&mut self, packet: &Packet, now: Time, tree: &Instances) -> (usize, Before) {
        let place = place(packet);
        let story = Story::new(packet, self.arrived, now);
        let sums = Sums {
            departures: self.departures.count(),
            ..self.sums
        };
        let old = self.waiting.insert(place, (story, sums));
        // One that became something else: its buffer is used again.
        if let Some((old, _)) = old {
            self.keep(old);
        }
        (place, Before::of(tree, &mut self.filters))
    }

    /// The packet is enqueued; it may have been dropped.
    pub(super) fn enqueued(&mut self, (place, before): (usize, Before), tree: &Instances) {
        if let Some((story, _)) = self.waiting.get_mut(&place) {
            story.enqueued(tree, &before, &self.filters);
        }
    }

    fn keep(&mut self, story: Story) {
        if story.number == self.asked {
            self.kept = Some(story);
        }
    }

    /// The story of a packet that ends.
    fn end(&mut self, packet: &Packet, fate: Fate) -> Option<Story> {
        let (mut story, before) = self.waiting.remove(&place(packet))?;
        story.passed = self.departures.since(before.departures);
        story.link = self.sums.link - before.link;
        story.held = self.sums.held - before.held;
        story.fate = fate;
        Some(story)
    }

    /// A packet of a class leaves.
    #[inline]
    pub(super) fn left(&mut self, packet: &Packet, class: Handle, now: Time) {
        if self.all || !self.is_idle() {
            self.note_left(packet, class, now);
        }
    }

    #[cold]
    fn note_left(&mut self, packet: &Packet, class: Handle, now: Time) {
        let story = self.end(packet, Fate::Left(now));
        let starts = self.waiting.values().map(|(_, sums)| sums.departures);
        self.departures.note(class, packet.wire_len(), starts);
        if self.all {
            self.left.push(story.clone());
        }
        if let Some(story) = story {
            self.keep(story);
        }
    }

    /// Packets are dropped.
    pub(super) fn dropped(&mut self, dropped: &Dropped, now: Time) {
        if self.is_idle() {
            return;
        }
        let counts = DropReason::ALL.iter().zip(dropped.counts());
        let reasons = counts.filter(|(_, n)| **n != 0).map(|(&reason, _)| reason);
        let reasons: Vec<DropReason> = reasons.collect();
        for packet in dropped.packets() {
            if let Some(story) = self.end(packet, Fate::Dropped(now, reasons.clone())) {
                self.keep(story);
            }
        }
    }

    /// Packets are sent to another link. None of them is a copy: a copy is where its original is.
    pub(super) fn sent_elsewhere(&mut self, packets: &PacketList) {
        if self.is_idle() {
            return;
        }
        for packet in packets {
            if let Some(story) = self.end(packet, Fate::Waits) {
                self.keep(story);
            }
        }
    }

    /// Time passes in which nothing leaves: so many nanoseconds in which the link was sending, and
    /// in which the tree let nothing leave.
    pub(super) fn waited(&mut self, link: u64, held: u64) {
        self.sums.link += link;
        self.sums.held += held;
    }
}

#[cfg(all(test, not(any(loom, miri))))]
mod tests {
    use std::convert::Infallible;

    use softnet::mem::Pool;
    use softnet::testing::{frame, pool};

    use super::*;
    use crate::PrioSpec;
    use crate::qdisc::{QdiscEnv, QdiscSpec};
    use crate::sim::{SimLink, Simulator};
    use crate::tree::Tree;

    /// A byte takes a microsecond.
    fn simulator(spec: QdiscSpec, pool: &Pool) -> Simulator {
        let tree = Tree::build(spec, &QdiscEnv::new(pool)).unwrap();
        let link = SimLink {
            rate: Some(1_000_000),
            ..SimLink::default()
        };
        Simulator::new(tree, link)
    }

    /// Packets of 1000 bytes with these priorities, 100 ns apart. Returned are the numbers of
    /// those that left.
    fn run(sim: &mut Simulator, priorities: &[u32], pool: &Pool) -> Vec<u32> {
        let mut left = Vec::new();
        let mut depart = |_: Time, packet: &Packet| {
            left.push(packet.mark());
            Ok::<(), Infallible>(())
        };
        for (number, &priority) in (1..).zip(priorities) {
            let mut packet = frame(pool, 1, 2, 1000, number);
            packet.set_priority(priority);
            let time = Time(u64::from(number) * 100);
            let Ok(()) = sim.arrive(packet, time, &mut depart);
        }
        let Ok(()) = sim.run_until(Time(1_000_000_000), &mut depart);
        left
    }

    /// The first leaves at once, the third overtakes the second.
    #[test]
    fn every_departure_has_its_story() {
        let pool = pool(16);
        let mut sim = simulator(QdiscSpec::Prio(PrioSpec::default()), &pool);
        sim.tell_all();
        sim.tell(3);
        assert_eq!(run(&mut sim, &[2, 2, 6], &pool), [1, 3, 2]);
        let stories: Vec<Story> = sim.take_stories().into_iter().flatten().collect();
        let told = stories.iter().map(|story| {
            let passed: Vec<(u64, u64)> = story.passed.values().copied().collect();
            (story.number, story.link, story.held, passed)
        });
        let expected = [
            (1, 0, 0, vec![]),
            (3, 999_800, 0, vec![]),
            (2, 1_999_900, 0, vec![(1, 1000)]),
        ];
        assert_eq!(told.collect::<Vec<_>>(), expected);
        assert_eq!(stories[2].fate, Fate::Left(Time(2_000_100)));
        assert_eq!(sim.story().map(|story| story.number), Some(3));
        assert!(sim.take_stories().is_empty());
    }

    #[test]
    fn a_packet_that_is_dropped_has_a_story_if_asked() {
        let pool = pool(16);
        let mut sim = simulator(QdiscSpec::Pfifo { limit: 1 }, &pool);
        sim.tell(3);
        assert_eq!(run(&mut sim, &[0; 4], &pool), [1, 2]);
        let story = sim.story().unwrap();
        let dropped = Fate::Dropped(Time(300), vec![DropReason::QdiscLimit]);
        assert_eq!((story.number, &story.fate), (3, &dropped));
        assert!(sim.take_stories().is_empty());
    }

    /// However many are sent to another link, nothing is kept of them but the story asked for.
    #[test]
    fn a_packet_for_another_link_waits_no_more() {
        let pool = pool(16);
        let spec = QdiscSpec::Pfifo { limit: 1 };
        let tree = Tree::build(spec, &QdiscEnv::new(&pool)).unwrap();
        let tree = Instances::one(tree);
        let mut stories = Stories::default();
        stories.ask(1);
        let packet = frame(&pool, 1, 2, 1000, 1);
        let told = stories.arrived(&packet, Time(1), &tree);
        assert!(told.is_some() && !stories.is_idle());
        stories.sent_elsewhere(&PacketList::from(packet));
        assert!(stories.is_idle());
        let story = stories.kept().unwrap();
        assert_eq!((story.number, &story.fate), (1, &Fate::Waits));
    }
}
