//! INV-MQ-4: a tree with an instance at each transmit queue. All of them are what the tree says
//! after each change, each does what a tree by itself would do, and what is shown is their sum.

use proptest::prelude::*;

use softnet::mem::{PacketList, Pool};
use softnet::qdisc::*;
use softnet::testing::{frame, pool};
use softnet::time::Time;

use crate::testing::bench::AllQueues;
use crate::testing::handle;
use crate::testing::steps::{Step, steps};
use crate::*;

const BUFFERS: usize = 512;

/// A parallel tree.
struct World {
    tree: DeviceTree,
    queues: Vec<AnyQdisc>,
    cx: Cx,
    pool: Pool,
    now: Time,
    made: u32,
}

impl World {
    fn new(spec: impl Into<TreeSpec>, queues: usize) -> World {
        let pool = pool(BUFFERS);
        let env = env(&pool, true);
        let (tree, roots) = DeviceTree::new(spec, queues, &env).unwrap();
        World {
            tree,
            queues: roots.instances,
            cx: Cx::new(&pool),
            pool,
            now: Time::ZERO,
            made: 0,
        }
    }

    fn edit(&mut self) -> Live<'_, AllQueues<'_>> {
        let queues = AllQueues(&mut self.queues, self.cx.at(self.now));
        self.tree.on(queues)
    }

    fn change(&mut self, step: Step) -> Result<(), SpecError> {
        let classes = self.classes();
        let classes = classes.iter().map(|class| class.class).collect();
        step.apply(&mut self.edit(), classes)
    }

    /// Without those that stand for queues of a device without a tree.
    fn classes(&self) -> Vec<ClassStats> {
        let queues: Vec<QdiscStats> = self.queues.iter().map(|queue| *queue.stats()).collect();
        let mut classes = self.tree.classes(&queues);
        if self.tree.spec().is_empty() {
            classes.truncate(1);
        }
        classes
    }

    fn class(&self, name: &str) -> ClassStats {
        let mut classes = self.classes().into_iter();
        classes.find(|class| class.class == handle(name)).unwrap()
    }

    fn send(&mut self, queue: usize, packets: &[(usize, u32)], mark: Option<u32>) {
        let mut list = list(&self.pool, packets, mark.unwrap_or(self.made));
        self.made += packets.len() as u32;
        self.queues[queue].enqueue(&mut list, self.cx.at(self.now));
        assert!(list.is_empty());
    }

    fn take(&mut self, queue: usize, budget: usize) -> (Vec<u32>, Next) {
        take(&mut self.queues[queue], budget, self.cx.at(self.now))
    }

    /// Each instance is what the tree says, and so are its filters.
    fn check(&mut self) {
        self.cx.dropped.settle(&softnet::stats::DropCounters::new());
        let env = env(&self.pool, self.tree.env().parallel);
        let spec = self.tree.spec().clone();
        let (again, roots) = DeviceTree::new(spec, self.queues.len(), &env).unwrap();
        for (queue, mut fresh) in self.queues.iter_mut().zip(roots.instances) {
            assert_eq!(shape(queue), shape(&mut fresh));
        }
        assert_eq!(again.filters.len(), self.tree.filters.len());
        for lists in &self.tree.filters {
            for (parent, list) in lists {
                assert_eq!(self.tree.spec().filters_of(*parent), Ok(list));
            }
            let known = self.tree.spec().filter_lists().count();
            assert_eq!(
                lists.values().filter(|list| !list.is_empty()).count(),
                known
            );
        }
        // What is shown of a class is what its children publish.
        for class in self.classes().into_iter().skip(1) {
            let Ok(above) = self.tree.spec().existing(class.class.qdisc()) else {
                continue;
            };
            if above.qdisc.is_per_queue() {
                // A queue's own are shown as they are.
                continue;
            }
            let (queues, path) = self.tree.locate(above.parent).unwrap();
            let minor = class.class.minor();
            let published = |own: &mut AnyQdisc, _: &mut Cx| {
                let children = own.children()?;
                Some(children.get(children.find(minor)?)?.counters().get())
            };
            let published = queues.filter_map(|queue| {
                self.queues[queue]
                    .at(&path, &mut self.cx, published)
                    .flatten()
            });
            assert_eq!(class.stats, published.sum(), "{class:?}");
        }
    }
}

fn env(pool: &Pool, parallel: bool) -> QdiscEnv {
    QdiscEnv {
        seed: 1,
        parallel,
        ..QdiscEnv::new(pool)
    }
}

/// Lengths and priorities; marked one after the other.
fn list(pool: &Pool, packets: &[(usize, u32)], first: u32) -> PacketList {
    let mut list = PacketList::new();
    for (&(len, priority), mark) in packets.iter().zip(first..) {
        let mut packet = frame(pool, 1, 2, len, mark);
        packet.set_priority(priority);
        packet.set_flow_hash(priority);
        list.push_back(packet);
    }
    list
}

fn take(qdisc: &mut AnyQdisc, budget: usize, cx: &mut Cx) -> (Vec<u32>, Next) {
    let mut out = PacketList::new();
    let next = qdisc.dequeue(budget, &mut out, cx);
    (out.iter().map(|packet| packet.mark()).collect(), next)
}

/// Kinds and classes, and where there are default qdiscs.
fn shape(qdisc: &mut AnyQdisc) -> String {
    if let AnyQdisc::Accounted(root) = qdisc {
        return shape(root.qdisc_mut());
    }
    let debug = format!("{qdisc:?}");
    let mut text: String = debug.chars().take_while(|c| c.is_alphanumeric()).collect();
    let Some(children) = qdisc.children_mut() else {
        return text;
    };
    let classes = children
        .classes()
        .map(|(minor, child)| (minor, child.is_default()));
    for (minor, is_default) in classes.collect::<Vec<_>>() {
        let slot = children.find(minor).unwrap();
        let below = children.with(slot, |child| shape(child.qdisc_mut()));
        text += &format!("({minor:x} {is_default} {below})");
    }
    text
}

/// The same change with kinds whose instances do not share rates, have no random numbers of their
/// own, and are several.
fn without_rates(step: Step) -> Step {
    let of = |spec| match spec {
        QdiscSpec::Tbf(_) | QdiscSpec::Htb(_) | QdiscSpec::Hfsc(_) | QdiscSpec::Netem(_) => {
            QdiscSpec::RoundRobin
        }
        // No tree with one queue has them.
        QdiscSpec::Multiq { .. } | QdiscSpec::CakeMq(_) => QdiscSpec::RoundRobin,
        // Hosts count over all instances, too.
        QdiscSpec::Cake(spec) => QdiscSpec::Cake(CakeSpec {
            bandwidth: None,
            autorate_ingress: false,
            isolation: Isolation::Flows,
            ..spec
        }),
        other => other,
    };
    match step {
        Step::Add(at, spec) => Step::Add(at, of(spec)),
        Step::Replace(at, spec) => Step::Replace(at, of(spec)),
        Step::Change(at, spec) => Step::Change(at, of(spec)),
        other => other,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Also where there is one for all queues.
    #[test]
    fn all_instances_are_what_the_tree_says(
        queues in 1..5_usize,
        parallel: bool,
        steps in proptest::collection::vec(steps(), 1..50),
    ) {
        let mut world = World::new(TreeSpec::new(), queues);
        world.edit().set_parallel(parallel);
        let (mut sent, mut left) = (0, 0);
        for step in steps {
            match step {
                Step::Enqueue(packets) => {
                    let queue = packets[0].0 % queues;
                    let free = world.pool.stats().free;
                    let packets = &packets[..packets.len().min(free)];
                    sent += packets.len();
                    world.send(queue, packets, None);
                }
                Step::Dequeue(budget, wait) => {
                    world.now = world.now.plus_nanos(wait);
                    left += world.take(budget % queues, budget).0.len();
                }
                change => {
                    let before = world.tree.spec().clone();
                    if world.change(change).is_err() {
                        prop_assert_eq!(world.tree.spec(), &before);
                    }
                }
            }
            let lost = world.cx.dropped.packets().len();
            world.check();
            let queued: u64 = world.queues.iter().map(|queue| queue.stats().qlen).sum();
            left += lost;
            prop_assert_eq!(sent, left + queued as usize);
        }
    }

    /// Each instance does what a tree by itself does that is changed in the same way, and what is
    /// shown is the sum.
    #[test]
    fn an_instance_is_a_tree_by_itself(
        queues in 1..5_usize,
        steps in proptest::collection::vec(steps(), 1..50),
    ) {
        let mut world = World::new(TreeSpec::new(), queues);
        let pools: Vec<Pool> = (0..queues).map(|_| pool(BUFFERS)).collect();
        let mut models: Vec<(Tree, Cx)> = pools
            .iter()
            .map(|pool| {
                let tree = Tree::build(TreeSpec::new(), &env(pool, false)).unwrap();
                (tree, Cx::new(pool))
            })
            .collect();
        for step in steps.into_iter().map(without_rates) {
            match step {
                Step::Enqueue(packets) => {
                    let queue = packets[0].0 % queues;
                    let packets = &packets[..packets.len().min(world.pool.stats().free)];
                    let mut list = list(&pools[queue], packets, world.made);
                    world.send(queue, packets, None);
                    let (model, cx) = &mut models[queue];
                    model.enqueue(&mut list, cx.at(world.now));
                }
                Step::Dequeue(budget, wait) => {
                    world.now = world.now.plus_nanos(wait);
                    let queue = budget % queues;
                    let (model, cx) = &mut models[queue];
                    let expected = take(model, budget, cx.at(world.now));
                    prop_assert_eq!(world.take(queue, budget), expected);
                }
                change => {
                    let classes = world.classes();
                    let classes: Vec<Handle> = classes.iter().map(|class| class.class).collect();
                    let result = world.change(change.clone());
                    for (model, cx) in &mut models {
                        let mut model = model.edit(cx.at(world.now));
                        let expected = change.clone().apply(&mut model, classes.clone());
                        prop_assert_eq!(&result, &expected);
                        prop_assert_eq!(world.tree.spec(), model.spec());
                    }
                }
            }
            world.cx.dropped.settle(&softnet::stats::DropCounters::new());
            let models = models.iter_mut().map(|(model, cx)| {
                cx.dropped.settle(&softnet::stats::DropCounters::new());
                model.classes()
            });
            let models: Vec<Vec<ClassStats>> = models.collect();
            for (place, class) in world.classes().iter().enumerate() {
                let sum = models.iter().map(|classes| classes[place].stats).sum();
                prop_assert_eq!(class.stats, sum, "{:?}", class);
            }
        }
    }
}

fn htb() -> TreeSpec {
    let mut spec = TreeSpec::new();
    let htb = HtbSpec {
        default: 0,
        ..HtbSpec::default()
    };
    spec.add(Handle::ROOT, handle("1:"), QdiscSpec::Htb(htb))
        .unwrap();
    for class in ["1:1", "1:2"] {
        let rate = ClassSpec::Htb(HtbClassSpec {
            burst: 1 << 20,
            cburst: 1 << 20,
            ..HtbClassSpec::new(1_000_000_000)
        });
        spec.add_class(handle("1:"), handle(class), rate).unwrap();
    }
    spec
}

fn fw(mark: u32, class: &str) -> FilterSpec {
    FilterSpec {
        prio: 1,
        handle: mark,
        ..FilterSpec::new(FilterKind::fw(0xff), handle(class))
    }
}

/// Sums of a tree that `tc` shows once: packets, classes, filters, and what only htb has.
#[test]
fn what_is_shown_is_the_sum_over_instances() {
    let mut world = World::new(htb(), 3);
    for (mark, class) in [(1, "1:1"), (2, "1:2")] {
        world
            .edit()
            .put_filter(FilterOp::Add, fw(mark, class))
            .unwrap();
    }
    for queue in 0..3 {
        for packet in 0..=queue {
            for mark in [1, 2, 2, 3] {
                world.send(queue, &[(100 + packet, 0)], Some(mark));
            }
        }
        let (taken, _) = world.take(queue, 100);
        assert_eq!(taken.len(), 4 * (queue + 1));
    }
    let packets = |class: &str| world.class(class).stats.packets;
    assert_eq!((packets("1:1"), packets("1:2")), (6, 12));
    assert_eq!(world.class("1:2").htb.unwrap().lended, 12);
    assert_eq!(world.classes()[0].stats.packets, 24);
    let direct = world.tree.xstats(handle("1:")).unwrap().iter().next();
    assert_eq!(direct, Some(("direct_packets_stat", 6)));
    let matched: Vec<u64> = world
        .tree
        .filters()
        .map(|(_, stats)| stats.matched)
        .collect();
    assert_eq!(matched, [6, 12]);
    let own = world.tree.spec().filters_of(handle("1:")).unwrap();
    let (filter, first) = own.shown().next().unwrap();
    assert_eq!(first.matched, 1, "of the first instance");
    assert_eq!(world.tree.filter_sum((filter, first)).1.matched, 6);
}

/// A rate counts what all instances send.
#[test]
fn a_rate_is_estimated_over_all_instances() {
    let mut world = World::new(htb(), 2);
    let every = EstimatorSpec::new(-2, 1).unwrap();
    world.edit().set_estimator(handle("1:1"), every).unwrap();
    world
        .edit()
        .put_filter(FilterOp::Add, fw(1, "1:1"))
        .unwrap();
    world.tree.sample_rates(world.now, &[]);
    for queue in 0..2 {
        world.send(queue, &[(1000, 0)], Some(1));
        assert_eq!(world.take(queue, 1).0, [1]);
    }
    world.now = world.now.plus_nanos(250_000_000);
    world.tree.sample_rates(world.now, &[]);
    // 2000 bytes in 250 ms are 8000 a second, of which half counts at first.
    let rate = world.tree.rate(handle("1:1")).unwrap();
    assert_eq!((rate.bytes, rate.packets), (4000, 4));
}

/// Where handles and priorities are chosen, all instances choose the same, whatever was chosen
/// before and whenever they were made.
#[test]
fn handles_are_chosen_alike_in_all_instances() {
    let mut world = World::new(htb(), 2);
    let u32 = |prio| FilterSpec {
        prio,
        ..FilterSpec::new(FilterKind::U32(U32::default()), handle("1:1"))
    };
    let delete = |world: &mut World, prio| {
        let which = FilterKey {
            prio,
            ..FilterKey::default()
        };
        world.edit().delete_filters(handle("1:"), which).unwrap();
    };
    for prio in [1, 2] {
        world.edit().put_filter(FilterOp::Add, u32(prio)).unwrap();
    }
    delete(&mut world, 2);
    delete(&mut world, 1);
    world.check();
    // The same tree with instances that are made anew.
    world.edit().set_parallel(false);
    assert_eq!(world.tree.instances(), 1);
    world.edit().set_parallel(true);
    assert_eq!(world.tree.instances(), 2);
    for prio in [1, 2, 3] {
        world.edit().put_filter(FilterOp::Add, u32(prio)).unwrap();
        world.check();
    }
}

/// A queue with a qdisc of its own below `mq` is not shared among instances.
#[test]
fn below_mq_there_is_one_instance() {
    let mut spec = TreeSpec::new();
    spec.add(Handle::ROOT, handle("1:"), QdiscSpec::Mq).unwrap();
    spec.add(
        handle("1:2"),
        handle("2:"),
        QdiscSpec::Prio(PrioSpec::default()),
    )
    .unwrap();
    let mut world = World::new(spec, 3);
    assert_eq!(world.tree.instances(), 1);
    let kinds: Vec<String> = world.queues.iter_mut().map(shape).collect();
    let kinds: Vec<&str> = kinds
        .iter()
        .map(|kind| kind.split('(').next().unwrap())
        .collect();
    assert_eq!(kinds, ["PfifoFast", "Prio", "PfifoFast"]);
    world
        .edit()
        .replace(Handle::ROOT, handle("3:"), QdiscSpec::RoundRobin)
        .unwrap();
    assert_eq!(world.tree.instances(), 3);
    assert!(
        world
            .queues
            .iter_mut()
            .all(|queue| shape(queue) == "RoundRobin")
    );
    world.edit().delete(handle("3:")).unwrap();
    assert!(
        world
            .queues
            .iter_mut()
            .all(|queue| shape(queue) == "PfifoFast")
    );
    assert_eq!(world.tree.instances(), 1);
}

/// Each instance is told which it is, once for each qdisc, and no other.
#[test]
fn instances_know_their_numbers() {
    let seen = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let note = seen.clone();
    let make = move |env: &QdiscEnv| {
        let instance = env
            .instance
            .as_ref()
            .map(|of| (of.index, of.rates.members().count()));
        note.lock().unwrap().push(instance);
        Box::new(Pfifo::new(1)) as Box<dyn Qdisc>
    };
    let custom = QdiscSpec::Custom(CustomSpec::new("custom", make));
    let mut world = World::new(custom.clone(), 3);
    let all = [Some((0, 3)), Some((1, 3)), Some((2, 3))];
    assert_eq!(std::mem::take(&mut *seen.lock().unwrap()), all);
    let prio = QdiscSpec::Prio(PrioSpec::default());
    world
        .edit()
        .replace(Handle::ROOT, handle("1:"), prio)
        .unwrap();
    world
        .edit()
        .add(handle("1:2"), handle("2:"), custom)
        .unwrap();
    assert_eq!(std::mem::take(&mut *seen.lock().unwrap()), all);
    world.edit().set_parallel(false);
    assert_eq!(*seen.lock().unwrap(), [None]);
}
