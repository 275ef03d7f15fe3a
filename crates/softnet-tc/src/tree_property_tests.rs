//! Random trees under random operations: after each step the lengths at every level are those of
//! what is really inside, and nothing is lost uncounted (INV-Q-1, INV-Q-2, INV-Q-6, INV-Q-9,
//! INV-Q-10, INV-Q-11; BUG-TX-18 to BUG-TX-21, BUG-TBF-1, BUG-TBF-4, BUG-PRIO-1, BUG-PRIO-3).

use softnet::mem::PacketList;
use softnet::time::Time;
use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;

use super::round_robin_tests::Weight;
use super::*;
use softnet::mem::{Packet, Pool};
use softnet::testing::{frame, pool};

const BUFFERS: usize = 512;

#[derive(Clone, Debug)]
pub(super) enum Step {
    /// Lengths and priorities.
    Enqueue(Vec<(usize, u32)>),
    /// A budget, after so many nanoseconds.
    Dequeue(usize, u64),
    Add(prop::sample::Index, QdiscSpec),
    Replace(prop::sample::Index, QdiscSpec),
    Change(prop::sample::Index, QdiscSpec),
    Delete(prop::sample::Index),
    Filter(prop::sample::Index, u32),
    /// A class of this number, below a class or qdisc.
    AddClass(prop::sample::Index, u16, Class),
    ChangeClass(prop::sample::Index, Class),
    DeleteClass(prop::sample::Index),
    Stab(prop::sample::Index, Option<SizeTable>),
}

impl Step {
    /// Changes a tree with these classes. What is no change of a tree does nothing.
    pub(super) fn apply<Q: Queues>(
        self,
        tree: &mut Live<'_, Q>,
        classes: Vec<Handle>,
    ) -> Result<(), SpecError> {
        let handles: Vec<Handle> = tree.spec().nodes().map(|node| node.handle).collect();
        match self {
            Step::Add(at, qdisc) => {
                let added = tree.add(*at.get(&classes), Handle::NONE, qdisc);
                added.map(|_| ())
            }
            Step::Replace(at, qdisc) => {
                let replaced = tree.replace(*at.get(&classes), Handle::NONE, qdisc);
                replaced.map(|_| ())
            }
            Step::Change(at, qdisc) if !handles.is_empty() => {
                tree.change(*at.get(&handles), &qdisc)
            }
            Step::Delete(at) if !handles.is_empty() => tree.delete(*at.get(&handles)),
            Step::Filter(at, mark) => {
                let class = *at.get(&classes);
                let filter = FilterSpec {
                    prio: mark as u16,
                    handle: mark & 3,
                    ..FilterSpec::new(FilterKind::Fw { mask: 3 }, class)
                };
                tree.put_filter(FilterOp::Add, filter).map(|_| ())
            }
            Step::AddClass(at, minor, class) => {
                let parents = [classes, handles].concat();
                let parent = *at.get(&parents);
                let spec = class.of(tree.spec(), parent.qdisc());
                tree.add_class(parent, parent.qdisc().class(minor), spec)
            }
            Step::ChangeClass(at, class) => {
                let at = *at.get(&classes);
                let class = class.of(tree.spec(), at.qdisc());
                tree.change_class(at, &class)
            }
            Step::Stab(at, table) if !handles.is_empty() => {
                tree.set_stab(*at.get(&handles), table)
            }
            Step::DeleteClass(at) => tree.delete_class(*at.get(&classes)),
            _ => Ok(()),
        }
    }
}

/// A class of either kind that has some.
#[derive(Clone, Debug)]
pub(super) struct Class {
    weight: usize,
    htb: HtbClassSpec,
}

impl Class {
    fn of(self, tree: &TreeSpec, qdisc: Handle) -> ClassSpec {
        match tree.node(qdisc).map(|node| &node.qdisc) {
            Some(QdiscSpec::Htb(_)) => ClassSpec::Htb(self.htb),
            _ => ClassSpec::RoundRobin(Weight(self.weight)),
        }
    }
}

/// A qdisc that cannot be looked into, so that what stands above it has to take packets out.
#[derive(Debug)]
pub(super) struct Opaque<Q>(pub(super) Q);

impl<Q: Qdisc> Qdisc for Opaque<Q> {
    fn enqueue(&mut self, packets: &mut PacketList, cx: &mut Cx) -> Verdict {
        self.0.enqueue(packets, cx)
    }
    fn dequeue(&mut self, budget: usize, out: &mut PacketList, cx: &mut Cx) -> Next {
        self.0.dequeue(budget, out, cx)
    }
    fn drain(&mut self, out: &mut PacketList) {
        self.0.drain(out);
    }
    fn stats(&self) -> &QdiscStats {
        self.0.stats()
    }
}

fn specs() -> impl Strategy<Value = QdiscSpec> {
    let tbf = (
        1_000_u64..1_000_000,
        60_u64..1_500,
        0_u64..3_000,
        prop::option::of(60_u32..1_000),
        0..60_u16,
        any::<bool>(),
    );
    let tbf = tbf.prop_map(|(rate, burst, limit, mtu, overhead, atm)| {
        QdiscSpec::Tbf(TbfSpec {
            rate,
            burst,
            limit,
            peakrate: mtu.map(|_| rate * 3),
            mtu: mtu.unwrap_or_default(),
            link: LinkCost {
                overhead,
                mpu: 64,
                linklayer: if atm {
                    LinkLayer::Atm
                } else {
                    LinkLayer::Ethernet
                },
            },
        })
    });
    let prio = (2..6_u16, any::<[u8; 16]>()).prop_map(|(bands, map)| {
        QdiscSpec::Prio(PrioSpec {
            bands,
            priomap: map.map(|band| band % bands as u8),
        })
    });
    let aqm = (0..20_000_u64, 0..50_000_u64, any::<bool>());
    let aqm = aqm.prop_map(|(target, interval, ecn)| AqmSpec {
        target: Duration::from_micros(target),
        interval: Duration::from_micros(interval),
        ecn,
        ..AqmSpec::default()
    });
    let codel = (0..20_u32, aqm.clone())
        .prop_map(|(limit, aqm)| QdiscSpec::Codel(CodelSpec { limit, aqm }));
    let fq_codel = (
        0..20_u32,
        0..40_000_u32,
        1..5_u32,
        0..4000_u32,
        0..9_u32,
        aqm,
    );
    let fq_codel = fq_codel.prop_map(|(limit, memory_limit, flows, quantum, drop_batch, aqm)| {
        QdiscSpec::FqCodel(FqCodelSpec {
            limit,
            memory_limit,
            flows,
            quantum: Some(quantum),
            drop_batch,
            aqm,
        })
    });
    let fq = (
        (0..12_u32, 0..6_u32, 0..4000_u32, 0..9000_u32),
        prop_oneof![Just(0), Just(3), Just(u32::MAX)],
        prop::option::of(prop_oneof![1_000..200_000_u64, any::<u64>()]),
        (0..40_u64, any::<bool>(), 0..100_u64, any::<bool>()),
        any::<[u8; 16]>(),
    );
    let fq = fq.prop_map(|(sizes, orphan_mask, maxrate, times, priomap)| {
        let (limit, flow_limit, quantum, initial_quantum) = sizes;
        let (horizon, horizon_drop, slack, pacing) = times;
        QdiscSpec::Fq(FqSpec {
            limit,
            flow_limit,
            quantum: Some(quantum),
            initial_quantum: Some(initial_quantum),
            orphan_mask,
            maxrate: maxrate.map(|rate| rate.max(1)),
            pacing,
            horizon: Duration::from_millis(horizon),
            horizon_drop,
            timer_slack: Duration::from_micros(slack),
            priomap: priomap.map(|band| band % 3),
            ..FqSpec::default()
        })
    });
    prop_oneof![
        1 => codel,
        3 => fq,
        2 => fq_codel,
        1 => (0..20_u32).prop_map(|limit| QdiscSpec::Pfifo { limit }),
        1 => (0..4_000_u64).prop_map(|limit| QdiscSpec::Bfifo { limit }),
        1 => (0..20_u32).prop_map(|limit| QdiscSpec::PfifoHeadDrop { limit }),
        1 => (1..9_u32).prop_map(|limit| QdiscSpec::PfifoFast { limit }),
        1 => (1..9_u32).prop_map(|limit| {
            let opaque = move || Opaque(PfifoHeadDrop::new(limit));
            let make = move |_: &QdiscEnv| Box::new(opaque()) as Box<dyn Qdisc>;
            QdiscSpec::Custom(CustomSpec::new("opaque", make))
        }),
        3 => tbf,
        4 => prio,
        4 => Just(QdiscSpec::RoundRobin),
        4 => (0..6_u16, 0..9_u32).prop_map(|(default, direct)| QdiscSpec::Htb(HtbSpec {
            default,
            direct_qlen: Some(direct),
            ..HtbSpec::default()
        })),
    ]
}

fn class() -> impl Strategy<Value = Class> {
    let rates = (0..1_000_000_u64, 1_u64..1_000_000);
    let bursts = (0_u64..3_000, 0_u64..3_000);
    let rest = (0..9_u8, prop::option::of(0..4_000_u32), 0..90_u16);
    let fields = (0..3_usize, rates, bursts, rest);
    fields.prop_map(|(weight, (rate, ceil), (burst, cburst), rest)| {
        let (prio, quantum, overhead) = rest;
        let htb = HtbClassSpec {
            rate,
            ceil,
            burst,
            cburst,
            ticks: None,
            prio,
            quantum,
            link: LinkCost {
                // Most often none.
                overhead: overhead.saturating_sub(60),
                ..LinkCost::default()
            },
        };
        Class { weight, htb }
    })
}

/// Size tables as tc computes them, and any at all.
pub(super) fn size_tables() -> impl Strategy<Value = SizeTable> {
    let logs = (0..=30_u8, 0..=30_u8, any::<i16>(), any::<i32>());
    let slots = proptest::collection::vec(any::<u16>(), 0..20);
    let hostile = (logs, slots).prop_map(|((cell_log, size_log, cell_align, overhead), slots)| {
        let spec = SizeSpec {
            cell_log,
            size_log,
            cell_align,
            overhead,
            tsize: slots.len() as u32,
            ..SizeSpec::default()
        };
        SizeTable::from_parts(spec, Some(&slots)).unwrap()
    });
    let sane = (0..200_u32, -20..60_i32, any::<bool>()).prop_map(|(mpu, overhead, atm)| {
        let options = SizeOptions {
            mpu,
            overhead,
            linklayer: Some(if atm {
                LinkLayer::Atm
            } else {
                LinkLayer::Ethernet
            }),
            ..SizeOptions::default()
        };
        SizeTable::new(&options).unwrap()
    });
    prop_oneof![sane, hostile]
}

/// Lengths and priorities of packets.
fn lists() -> impl Strategy<Value = Vec<(usize, u32)>> {
    // Of the first qdiscs whose handles are chosen.
    let class = (0x8001..0x8006_u16, 0..6_u16);
    let class = class.prop_map(|(major, minor)| Handle::new(major, minor).raw());
    proptest::collection::vec(
        (60_usize..1_600, prop_oneof![0..16_u32, any::<u32>(), class]),
        1..12,
    )
}

pub(super) fn steps() -> impl Strategy<Value = Step> {
    let index = any::<prop::sample::Index>;
    prop_oneof![
        6 => lists().prop_map(Step::Enqueue),
        6 => (0_usize..12, 0_u64..20_000_000)
            .prop_map(|(budget, wait)| Step::Dequeue(budget, wait)),
        6 => (index(), specs()).prop_map(|(at, spec)| Step::Add(at, spec)),
        2 => (index(), specs()).prop_map(|(at, spec)| Step::Replace(at, spec)),
        3 => (index(), specs()).prop_map(|(at, spec)| Step::Change(at, spec)),
        1 => index().prop_map(Step::Delete),
        1 => (index(), 0..4_u32).prop_map(|(at, mark)| Step::Filter(at, mark)),
        6 => (index(), 1..6_u16, class())
            .prop_map(|(at, minor, class)| Step::AddClass(at, minor, class)),
        1 => (index(), class()).prop_map(|(at, class)| Step::ChangeClass(at, class)),
        2 => index().prop_map(Step::DeleteClass),
        2 => (index(), prop::option::weighted(0.8, size_tables()))
            .prop_map(|(at, table)| Step::Stab(at, table)),
    ]
}

/// A tree and what must be inside.
struct World {
    tree: Tree,
    pool: Pool,
    cx: Cx,
    /// The length of each, and what it counts as.
    inside: BTreeMap<u32, (u64, u64)>,
    now: Time,
    sequence: u32,
    left: u64,
    /// What left before the root was replaced.
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
            tree: Tree::build(TreeSpec::new(), &env).unwrap(),
            cx: Cx::new(&pool),
            pool,
            inside: BTreeMap::new(),
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
        None
    }

    fn gone(&mut self, packet: &Packet) -> u32 {
        let len = self.inside.remove(&packet.mark());
        let len = len.map(|(len, _)| len);
        assert_eq!(len, Some(packet.wire_len()), "a packet twice");
        assert_eq!(packet.accounted(), None);
        self.left += 1;
        packet.mark()
    }

    fn list(&mut self, packets: Vec<(usize, u32)>) -> PacketList {
        let root = self.tree.spec().root();
        let table = root.and_then(|root| root.stab.clone());
        let room = BUFFERS - self.inside.len();
        let mut list = PacketList::new();
        for (len, priority) in packets.into_iter().take(room) {
            let mut packet = frame(&self.pool, 1, 2, len, self.sequence);
            packet.set_priority(priority);
            packet.set_flow_hash(priority);
            if priority > 1 << 31 {
                // A departure time, up to 60 ms from now.
                packet.set_departure_time(self.now.plus_nanos(u64::from(priority % 60_000_000)));
            }
            let len = len as u64;
            let counts_as = table.as_ref().map_or(len, |table| table.size(len).into());
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
        (marks, next)
    }

    fn structure(&mut self, step: Step) {
        let World { tree, now, cx, .. } = self;
        let classes: Vec<Handle> = tree.classes().iter().map(|class| class.class).collect();
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
    }

    fn check(&mut self) {
        for packet in self.cx.dropped.packets() {
            assert!(
                self.inside.remove(&packet.mark()).is_some(),
                "dropped twice"
            );
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
        assert_eq!(self.pool.stats().free as u64 + total.qlen, BUFFERS as u64);
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
                // Direct packets of an htb are in no class. A packet that what stands above has
                // taken out to look at it is in no class any more.
                if class.kind == "htb" {
                    let own = [own.qlen, own.backlog, own.queued];
                    assert!(own.iter().zip(below).all(|(own, below)| *own >= below));
                } else if own.qlen == below[0] + 1 {
                    assert!(
                        own.backlog > below[1] && own.queued == below[2] + 1,
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
        let again = Tree::build(self.tree.spec().clone(), &QdiscEnv::new(&self.pool));
        assert_eq!(again.unwrap().spec(), self.tree.spec());
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
        for step in steps {
            match step {
                Step::Enqueue(packets) => world.enqueue(packets),
                Step::Dequeue(budget, wait) => {
                    world.now = world.now.plus_nanos(wait);
                    world.dequeue(budget);
                }
                other => world.structure(other),
            }
            world.check();
        }
        world.run_dry();
    }

    /// To let packets pass is to enqueue them and to dequeue them at once: the same packets
    /// leave then and later, and every class counts the same.
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
        for (at, spec) in tree {
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
        tree in proptest::collection::vec((any::<prop::sample::Index>(), specs()), 1..6),
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
