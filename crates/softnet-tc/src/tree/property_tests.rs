//! Random trees under random operations: after each step the lengths at every level are those of
//! what is really inside, and nothing is lost uncounted (INV-Q-1, INV-Q-2, INV-Q-6, INV-Q-9,
//! INV-Q-10, INV-Q-11; BUG-TX-18 to BUG-TX-21, BUG-TBF-1, BUG-TBF-4, BUG-PRIO-1, BUG-PRIO-3).

use std::collections::BTreeMap;

use proptest::prelude::*;

use softnet::mem::{Packet, PacketList, Pool};
use softnet::qdisc::*;
use softnet::testing::pool;
use softnet::time::Time;

use crate::testing::ip;
use crate::testing::specs::{class, specs};
use crate::testing::steps::{Step, lists, steps};
use crate::*;

const BUFFERS: usize = 512;
/// Transmit queues of the device. One instance runs for all.
const QUEUES: usize = 3;

/// Kinds that keep the order of what is sorted alike. By what `red` marks, a `dualpi2` below it
/// sorts.
fn in_order() -> impl Strategy<Value = QdiscSpec> {
    specs().prop_filter("netem reorders, and red marks", |spec| {
        !matches!(
            spec,
            QdiscSpec::Netem(_) | QdiscSpec::Red(RedSpec { ecn: true, .. })
        )
    })
}

/// Bytes that a packet of this length counts as.
fn counts_as(table: Option<&SizeTable>, len: u64) -> u64 {
    table.map_or(len, |table| table.size(len).into())
}

/// A tree and what must be inside.
struct World {
    tree: Tree,
    pool: Pool,
    cx: Cx,
    /// The length of each, and what it counts as.
    inside: BTreeMap<u32, (u64, u64)>,
    /// Packets outside that share the data of those of the same mark.
    others: BTreeMap<u32, Packet>,
    /// Packets that a `netem` has copied.
    copies: u64,
    /// Bytes of a packet's own buffer.
    buffer: u64,
    now: Time,
    sequence: u32,
    left: u64,
    /// Packets that left before the root was replaced.
    left_before: u64,
    lost: u64,
}

impl World {
    fn new() -> World {
        let pool = pool(BUFFERS);
        let env = QdiscEnv {
            seed: 1,
            ..QdiscEnv::new(&pool)
        };
        World {
            tree: Tree::with_queues(TreeSpec::new(), QUEUES, &env).unwrap().0,
            cx: Cx::new(&pool),
            buffer: pool.alloc().unwrap().memory(),
            pool,
            inside: BTreeMap::new(),
            others: BTreeMap::new(),
            copies: 0,
            now: Time::ZERO,
            sequence: 0,
            left: 0,
            left_before: 0,
            lost: 0,
        }
    }

    fn enqueue(&mut self, packets: Vec<(usize, u32)>) {
        let mut list = self.list(packets);
        self.tree.enqueue(&mut list, self.cx.at(self.now));
        assert!(list.is_empty(), "enqueue takes all");
        self.enqueue_copies();
    }

    /// Enqueues copies at the root, once, as a queue's owner does it, and gives each a mark of its
    /// own. False: there was none.
    fn enqueue_copies(&mut self) -> bool {
        if self.cx.reinject.is_empty() {
            return false;
        }
        let table = self.table();
        let mut copies = self.cx.reinject.take();
        self.copies += copies.len() as u64;
        copies.for_each_mut(|copy| {
            assert_eq!(copy.accounted(), None);
            copy.set_mark(self.sequence);
            let len = copy.len() as u64;
            let counts_as = counts_as(table.as_ref(), len);
            self.inside.insert(self.sequence, (len, counts_as));
            self.sequence += 1;
        });
        self.tree.enqueue(&mut copies, self.cx.at(self.now));
        assert!(self.cx.reinject.is_empty(), "a copy is not copied");
        true
    }

    /// Returns the marks of what passed.
    fn pass_or_enqueue(&mut self, packets: Vec<(usize, u32)>) -> Option<Vec<u32>> {
        let mut list = self.list(packets);
        let sum = WireSum::from(&list);
        let before = *self.tree.stats();
        if !list.is_empty() && self.tree.try_pass(&list, sum, self.cx.at(self.now)) {
            assert_eq!(before.qlen, 0);
            return Some(list.iter().map(|packet| self.gone(packet)).collect());
        }
        assert_eq!(*self.tree.stats(), before);
        self.tree.enqueue(&mut list, self.cx.at(self.now));
        self.enqueue_copies();
        None
    }

    fn gone(&mut self, packet: &Packet) -> u32 {
        let len = self.inside.remove(&packet.mark());
        let len = len.map(|(len, _)| len);
        assert_eq!(len, Some(packet.wire_len()), "a packet twice");
        assert_eq!(packet.accounted(), None);
        self.others.remove(&packet.mark());
        self.left += 1;
        packet.mark()
    }

    /// The size table of the root.
    fn table(&self) -> Option<SizeTable> {
        let root = self.tree.spec().root();
        root.and_then(|root| root.stab.clone())
    }

    /// Two of three can be marked; one of four shares its data.
    fn packet(&mut self, len: usize, priority: u32) -> Packet {
        let mut packet = match len {
            0 => self.pool.alloc().unwrap(),
            _ => ip(&self.pool, len, (priority % 3) as u8, 0),
        };
        packet.set_mark(self.sequence);
        if self.sequence & 3 == 0 {
            let other = packet.share(&self.pool).unwrap();
            self.others
                .insert(self.sequence, std::mem::replace(&mut packet, other));
        }
        packet
    }

    fn list(&mut self, packets: Vec<(usize, u32)>) -> PacketList {
        let table = self.table();
        // None takes more than two buffers.
        let room = (BUFFERS / 2).saturating_sub(self.inside.len());
        let mut list = PacketList::new();
        for (len, priority) in packets.into_iter().take(room) {
            let mut packet = self.packet(len, priority);
            packet.set_priority(priority);
            packet.set_flow_hash(priority);
            if priority > 1 << 31 {
                // A departure time, up to 60 ms from now.
                packet.set_departure_time(self.now.plus_nanos(u64::from(priority % 60_000_000)));
            }
            let len = len as u64;
            let counts_as = counts_as(table.as_ref(), len);
            self.inside.insert(self.sequence, (len, counts_as));
            self.sequence += 1;
            list.push_back(packet);
        }
        list
    }

    fn dequeue(&mut self, budget: usize) -> (Vec<u32>, Next) {
        // INV-Q-9: a look changes nothing, and says what comes.
        let before = *self.tree.stats();
        let peek = self.tree.peek(self.now);
        assert_eq!(*self.tree.stats(), before);
        let mut out = PacketList::new();
        let next = self.tree.dequeue(budget, &mut out, self.cx.at(self.now));
        assert!(out.len() <= budget);
        if budget > 0 {
            match (peek, out.front()) {
                (Peek::Packet(size), Some(packet)) => {
                    assert_eq!(size.bytes, self.inside[&packet.mark()].1);
                    assert_eq!(size.packets, 1);
                }
                (Peek::Packet(_), None) => panic!("a look said that a packet would leave"),
                (Peek::Idle | Peek::At(_), Some(_)) => panic!("a look said that none would leave"),
                (Peek::Unknown, _) | (_, None) => {}
            }
        }
        let marks = out.iter().map(|packet| self.gone(packet)).collect();
        drop(out);
        match self.enqueue_copies() {
            true => (marks, Next::Ready),
            false => (marks, next),
        }
    }

    /// Everything leaves, and nothing of it counts as sent or dropped.
    fn drain(&mut self) {
        let before = *self.tree.stats();
        let mut out = PacketList::new();
        self.tree.drain(&mut out);
        assert_eq!(out.len(), self.inside.len());
        for packet in &out {
            self.gone(packet);
        }
        self.left_before += out.len() as u64;
        let after = self.tree.stats();
        assert_eq!((after.packets, after.drops), (before.packets, before.drops));
    }

    fn structure(&mut self, mut step: Step) {
        if let Step::Add(_, QdiscSpec::Netem(netem))
        | Step::Replace(_, QdiscSpec::Netem(netem))
        | Step::Change(_, QdiscSpec::Netem(netem)) = &mut step
        {
            // Not where steps come from: copies have to be told apart.
            netem.duplicate = netem.loss;
        }
        if let Step::Add(_, spec) | Step::Replace(_, spec) = &step
            && spec.is_per_queue()
        {
            // `parallel_tests` has all queues.
            return;
        }
        let World { tree, now, cx, .. } = self;
        let classes = tree.classes();
        // Without that of the queue of a device without a tree.
        let named = classes.iter().map(|class| class.class);
        let classes: Vec<Handle> = named.filter(|class| class.major() != 0).collect();
        // Errors (a class that is taken, a kind that cannot change) leave everything as it is.
        let (spec, before) = (tree.spec().clone(), tree.stats().packets);
        let result = step.apply(&mut tree.edit(cx.at(*now)), classes);
        if result.is_err() {
            assert_eq!(*tree.spec(), spec);
        }
        let root = |spec: &TreeSpec| spec.root().map(|root| root.handle);
        if root(&spec) != root(self.tree.spec()) {
            // What moved counts as its length.
            self.inside
                .values_mut()
                .for_each(|(len, counts_as)| *counts_as = *len);
        }
        if self.tree.stats().packets < before {
            // A new root counts from the start.
            self.left_before = self.left;
        }
        self.enqueue_copies();
    }

    fn check(&mut self) {
        for packet in self.cx.dropped.packets() {
            assert!(
                self.inside.remove(&packet.mark()).is_some(),
                "dropped twice"
            );
            self.others.remove(&packet.mark());
            self.lost += 1;
        }
        self.cx.dropped.settle(&softnet::stats::DropCounters::new());
        let total = self.tree.stats();
        assert_eq!(total.qlen, self.inside.len() as u64);
        assert_eq!(
            total.backlog,
            self.inside.values().map(|p| p.1).sum::<u64>()
        );
        assert_eq!(total.queued, total.qlen);
        assert_eq!(total.packets, self.left - self.left_before);
        assert_eq!(u64::from(self.sequence), self.left + self.lost + total.qlen);
        let buffers = total.qlen + self.others.len() as u64;
        let kept = BUFFERS as u64 - self.pool.stats().free as u64 - buffers;
        // By copies, whose data is another's.
        assert!(kept <= self.copies.min(total.qlen));
        let counted = total.memory / self.buffer;
        assert!((total.qlen..=2 * total.qlen).contains(&counted));
        // Every level by itself: a qdisc holds what its classes hold.
        let classes = self.tree.classes();
        for class in &classes {
            let below: Vec<_> = classes
                .iter()
                .filter(|c| c.class.qdisc() == class.qdisc && c.class != Handle::ROOT)
                .collect();
            if class.qdisc != Handle::NONE && !below.is_empty() {
                let sum =
                    |f: fn(&QdiscStats) -> u64| below.iter().map(|c| f(&c.stats)).sum::<u64>();
                let own = class.stats;
                let below = [sum(|s| s.qlen), sum(|s| s.backlog), sum(|s| s.queued)];
                // Direct packets of an htb, and those whose delay in a netem is not over, are in no
                // class. A packet that what stands above has
                // taken out to look at it is in no class any more.
                if matches!(class.kind, "htb" | "netem") {
                    let own = [own.qlen, own.backlog, own.queued];
                    assert!(own.iter().zip(below).all(|(own, below)| *own >= below));
                } else if own.qlen == below[0] + 1 {
                    assert!(
                        own.backlog >= below[1] && own.queued == below[2] + 1,
                        "{class:?}"
                    );
                } else {
                    assert_eq!([own.qlen, own.backlog, own.queued], below, "{class:?}");
                }
            }
            if class.stats.qlen == 0 {
                assert_eq!(class.stats.backlog, 0);
            }
        }
        // Each class comes after what is above it.
        for (index, class) in classes.iter().enumerate().skip(1) {
            let above = classes[..index].iter();
            let mut above = above.filter(|c| [c.class, c.qdisc].contains(&class.parent));
            assert!(above.next().is_some(), "{class:?}");
        }
        // What is configured can be built again.
        let env = QdiscEnv::new(&self.pool);
        let again = Tree::with_queues(self.tree.spec().clone(), QUEUES, &env);
        assert_eq!(again.unwrap().0.spec(), self.tree.spec());
    }

    /// INV-Q-8, INV-TX-2: everything leaves if one comes back at the times that the tree asks for.
    fn run_dry(&mut self) {
        for _ in 0..20_000 {
            match self.dequeue(64).1 {
                Next::Idle => break,
                Next::Ready => {}
                Next::At(time) => {
                    assert!(time > self.now, "asks to come back at once");
                    self.now = time;
                }
            }
        }
        self.check();
        assert!(self.inside.is_empty(), "stuck: {:?}", self.tree.stats());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 300 }))]

    #[test]
    fn lengths_are_right_at_every_level_after_every_step(
        steps in proptest::collection::vec(steps(), 1..60),
    ) {
        let mut world = World::new();
        // Some packets have no byte.
        let len = |len: usize| if len & 31 == 0 { 0 } else { len };
        for step in steps {
            match step {
                Step::Enqueue(packets) => {
                    let packets = packets.into_iter();
                    world.enqueue(packets.map(|(of, priority)| (len(of), priority)).collect());
                }
                Step::Dequeue(budget, wait) => {
                    world.now = world.now.plus_nanos(wait);
                    world.dequeue(budget);
                }
                Step::Drain => world.drain(),
                other => world.structure(other),
            }
            world.check();
        }
        world.run_dry();
    }

    /// To let packets pass is to enqueue them and to dequeue them at once: the same packets
    /// leave then and later, and every class counts the same. (Not so with `fq`, where what passes
    /// costs its flow no credit, as in the kernel.)
    #[test]
    fn to_pass_is_to_enqueue_and_dequeue(
        tree in proptest::collection::vec((any::<prop::sample::Index>(), specs()), 1..4),
        classes in proptest::collection::vec(
            (any::<prop::sample::Index>(), 1..6_u16, class()),
            0..6,
        ),
        steps in proptest::collection::vec((lists(), 0..20_usize, 0..90_000_000_u64), 1..30),
    ) {
        let (mut passes, mut queues) = (World::new(), World::new());
        let is_exact = |spec: &QdiscSpec| !matches!(spec, QdiscSpec::Fq(_));
        for (at, spec) in tree.into_iter().filter(|(_, spec)| is_exact(spec)) {
            passes.structure(Step::Add(at, spec.clone()));
            queues.structure(Step::Add(at, spec));
        }
        for (at, minor, class) in classes {
            passes.structure(Step::AddClass(at, minor, class.clone()));
            queues.structure(Step::AddClass(at, minor, class));
        }
        for (packets, budget, wait) in steps {
            queues.enqueue(packets.clone());
            if let Some(marks) = passes.pass_or_enqueue(packets) {
                prop_assert_eq!(marks.clone(), queues.dequeue(marks.len()).0);
            }
            for world in [&mut passes, &mut queues] {
                world.now = world.now.plus_nanos(wait);
            }
            prop_assert_eq!(passes.dequeue(budget), queues.dequeue(budget));
            let classes = |world: &World| {
                let mut classes = world.tree.classes();
                // What passes is seen by no flow and no AQM, as in the kernel.
                classes.iter_mut().for_each(|class| class.xstats = None);
                format!("{classes:?}")
            };
            prop_assert_eq!(classes(&passes), classes(&queues));
            passes.check();
            queues.check();
        }
    }

    /// INV-Q-5: in a tree that stays as it is, packets that are sorted alike leave in order.
    #[test]
    fn packets_of_one_priority_keep_their_order(
        tree in proptest::collection::vec((any::<prop::sample::Index>(), in_order()), 1..6),
        steps in proptest::collection::vec(
            (1..20_usize, 0..20_usize, 0..9_000_000_u64, 0..16_u32),
            1..30,
        ),
    ) {
        let mut world = World::new();
        for (at, spec) in tree {
            world.structure(Step::Add(at, spec));
        }
        let mut last = [None; 16];
        let mut priorities = Vec::new();
        let mut check = |marks: Vec<u32>, priorities: &[u32]| {
            for mark in marks {
                let seen = &mut last[priorities[mark as usize] as usize];
                assert!(seen.is_none_or(|seen| seen < mark));
                *seen = Some(mark);
            }
        };
        for (count, budget, wait, priority) in steps {
            let first = world.sequence as usize;
            world.enqueue((0..count).map(|n| (60 + 7 * n, (priority + n as u32) & 15)).collect());
            let sent = 0..world.sequence as usize - first;
            priorities.extend(sent.map(|n| (priority + n as u32) & 15));
            world.now = world.now.plus_nanos(wait);
            let marks = world.dequeue(budget).0;
            check(marks, &priorities);
            world.check();
        }
        world.run_dry();
    }
}
