//! `mq` and `mqprio` over a device with several queues: INV-MQ-1 to -3, BUG-PF-4, BUG-TX-26.

use super::*;
use softnet::stats::DropReason;
use softnet_tc::{DeviceTree, Handle, QdiscEnv, QueueMapError, TreeError, TreeSpec};

/// Sends `count` packets of one priority, each of a flow of its own.
fn send(bench: &Bench, priority: u32, count: u32) {
    let mut list = flows(&bench.pool, 0..count);
    list.for_each_mut(|packet| packet.set_priority(priority));
    bench.device.transmit(list, Time::ZERO);
}

/// A qdisc for each of the first queues.
fn below(root: QdiscSpec, children: &[QdiscSpec]) -> Result<QdiscSpec, SpecError> {
    let mut tree = TreeSpec::new();
    let root = tree.add(Handle::ROOT, Handle::NONE, root)?;
    for (minor, child) in (1..).zip(children) {
        tree.add(root.class(minor), Handle::NONE, child.clone())?;
    }
    Ok(QdiscSpec::Tree(tree))
}

fn mqprio() -> QueueMap {
    let class = |count, offset| TcQueues { count, offset };
    let mut prio_tc_map = [0; 16];
    prio_tc_map[6] = 1;
    prio_tc_map[7] = 2;
    QueueMap {
        prio_tc_map,
        classes: vec![class(1, 0), class(2, 1), class(1, 3)],
    }
}

/// INV-MQ-1, BUG-PF-4: each queue has its own child, of any kind, and the root's counters are the
/// sums of theirs.
#[test]
fn inv_mq_1_totals_are_the_sums_of_the_children() {
    let fast = QdiscSpec::PfifoFast { limit: 5 };
    let pfifo = QdiscSpec::Pfifo { limit: 2 };
    let children = [pfifo, shaped(1000, 500, 700), fast.clone(), fast];
    let bench = scripted(below(QdiscSpec::Mq, &children).unwrap(), 4);
    for ring in [0, 2] {
        bench.scripts[ring].set_capacity(0);
    }
    send(&bench, 0, 80);
    let stats = bench.device.stats();
    let sent = bench.sent();
    // The bucket of queue 1 alone lets 5 packets of 100 bytes leave; queue 3 is not limited.
    assert_eq!((sent[0], sent[1], sent[2]), (0, 5, 0));
    assert!(sent[3] > 5, "{sent:?}");
    let total = stats.qdisc();
    assert_eq!(total.qlen, stats.queued);
    assert_eq!(total.backlog, stats.queued * 100);
    assert_eq!(total.drops, stats.dropped());
    assert_eq!(80, stats.tx_packets + stats.dropped() + stats.queued);
    assert!(
        stats
            .queues
            .iter()
            .all(|q| q.qdisc.overlimits == 0 || q.qdisc.qlen == 7)
    );
    assert_eq!(stats.drops.len(), 1);
    assert_eq!(stats.drops[0].0, DropReason::QdiscLimit);
    // Another qdisc takes over what all of them hold, hidden or not.
    bench.set(&QdiscSpec::Pfifo { limit: 100 });
    let stats = bench.device.stats();
    assert_eq!(80, stats.tx_packets + stats.dropped() + stats.queued);
    assert_eq!(stats.qdisc().qlen, stats.queued);
}

/// INV-MQ-2: a priority's packets use its class's queues only, also where a receive queue was
/// recorded.
#[test]
fn inv_mq_2_a_priority_takes_the_queues_of_its_class() {
    let bench = scripted(QdiscSpec::Mqprio(mqprio()), 4);
    send(&bench, 0, 20);
    assert_eq!(bench.sent(), [20, 0, 0, 0]);
    send(&bench, 6, 20);
    let sent = bench.sent();
    assert_eq!((sent[0], sent[1] + sent[2], sent[3]), (20, 20, 0));
    assert!(sent[1] > 0 && sent[2] > 0);
    send(&bench, 7, 20);
    let mut recorded = frame(&bench.pool, 1, 2, 100, 0);
    recorded.set_queue(Some(0));
    recorded.set_priority(7);
    bench.device.transmit(recorded.into(), Time::ZERO);
    assert_eq!(bench.sent()[3], 21);
    let stats = bench.device.stats();
    let of_queue = |queue: usize| stats.queues[queue].qdisc.packets;
    assert_eq!((of_queue(1) + of_queue(2), of_queue(3)), (20, 21));
    assert_eq!(stats.qdisc().packets, 61);
}

/// INV-MQ-3: with the qdisc, its classes go.
#[test]
fn inv_mq_3_the_map_goes_with_mqprio() {
    let bench = scripted(QdiscSpec::default(), 4);
    bench
        .device
        .set_qdisc(&QdiscSpec::Mqprio(mqprio()), Time::ZERO)
        .unwrap();
    send(&bench, 0, 20);
    assert_eq!(bench.sent(), [20, 0, 0, 0]);
    bench.device.set_qdisc(&QdiscSpec::Mq, Time::ZERO).unwrap();
    send(&bench, 0, 40);
    assert!(bench.sent().iter().all(|&n| n > 0), "{:?}", bench.sent());
}

/// Queues 0 and 1 for one class, 2 and 3 for another, whose only priority is 6.
fn halves() -> QueueMap {
    let class = |count, offset| TcQueues { count, offset };
    QueueMap {
        prio_tc_map: std::array::from_fn(|priority| u8::from(priority == 6)),
        classes: vec![class(2, 0), class(2, 2)],
    }
}

/// INV-MQ-2: a device's own map that is set, or changed, beside `mqprio` leaves its classes in
/// force.
#[test]
fn inv_mq_2_a_map_beside_mqprio_leaves_its_classes_in_force() {
    let bench = scripted(QdiscSpec::Mqprio(mqprio()), 4);
    for (sent, own) in (1..).zip([QueueMap::default(), halves()]) {
        bench.device.set_queue_map(&own);
        send(&bench, 0, 20);
        assert_eq!(bench.sent(), [20 * sent, 0, 0, 0]);
    }
}

/// A worker's own queue is one of the class of `mqprio`.
#[test]
fn a_worker_has_a_queue_within_the_class_of_mqprio() {
    let bench = scripted(QdiscSpec::Mqprio(mqprio()), 4);
    set_worker(3);
    send(&bench, 6, 20);
    assert_eq!(bench.sent(), [0, 0, 20, 0]);
}

/// INV-MQ-3: when `mqprio` goes, the device's own map is in force again.
#[test]
fn inv_mq_3_the_devices_own_map_comes_back_after_mqprio() {
    let bench = scripted(QdiscSpec::default(), 4);
    bench.device.set_queue_map(&halves());
    bench.set(&QdiscSpec::Mqprio(mqprio()));
    bench.set(&QdiscSpec::Mq);
    send(&bench, 6, 40);
    let sent = bench.sent();
    assert_eq!((sent[0], sent[1], sent[2] + sent[3]), (0, 0, 40));
    assert!(sent[2] > 0 && sent[3] > 0, "{sent:?}");
}

/// BUG-TX-26 (noqueue below a class), queues that are not there, and an `mq` below another:
/// nothing is changed.
#[test]
fn bug_tx_26_wrong_children_are_refused() {
    let bench = scripted(QdiscSpec::Mqprio(mqprio()), 4);
    for (child, kind) in [
        (QdiscSpec::Noqueue, "noqueue"),
        (QdiscSpec::Mq, "mq"),
        (QdiscSpec::Mqprio(mqprio()), "mqprio"),
    ] {
        let result = below(QdiscSpec::Mq, &[child]);
        assert_eq!(result, Err(TreeError::RootOnly(kind).into()));
    }
    let mut far = mqprio();
    far.classes[2].offset = 4;
    let result = bench
        .device
        .set_qdisc(&QdiscSpec::Mqprio(far.clone()), Time::ZERO);
    assert!(matches!(
        result,
        Err(SpecError::Queues(QueueMapError::Beyond { .. }))
    ));
    assert!(configured(config("mq"), QdiscSpec::Mqprio(far), 4).is_err());
    send(&bench, 7, 5);
    assert_eq!(bench.sent(), [0, 0, 0, 5], "the old one still stands");
}

/// Queues that the device does not have, and one queue only.
#[test]
fn mq_needs_its_queues() {
    let mq = |children: usize| {
        let children = vec![QdiscSpec::Pfifo { limit: 9 }; children];
        below(QdiscSpec::Mq, &children).unwrap()
    };
    let error = |qdisc, queues| configured(config("mq"), qdisc, queues).err();
    assert_eq!(error(mq(0), 1), Some(SpecError::OneQueue("mq")));
    let far = SpecError::NoQueue {
        kind: "mq",
        class: 3,
        queues: 2,
    };
    assert_eq!(error(mq(3), 2), Some(far.clone()));
    assert_eq!(error(mq(2), 2), None);
    let bench = scripted(QdiscSpec::default(), 2);
    assert_eq!(bench.device.set_qdisc(&mq(3), Time::ZERO), Err(far));
    let one = scripted(QdiscSpec::default(), 1);
    let map = QdiscSpec::Mqprio(QueueMap::default());
    let result = one.device.set_qdisc(&map, Time::ZERO);
    assert_eq!(result, Err(SpecError::OneQueue("mqprio")));
}

/// A `pfifo_fast` that was asked for is one for the device, as `tc qdisc add … root pfifo_fast`
/// makes it; the default is one for each queue.
#[test]
fn one_pfifo_fast_for_all_queues() {
    let bench = scripted(QdiscSpec::PfifoFast { limit: 10 }, 4);
    assert_eq!(bench.device.active(), 1);
    bench.set_capacity(0);
    send(&bench, 0, 40);
    let stats = bench.device.stats();
    // The limit is that of all queues together, besides what each ring was offered.
    assert_eq!(stats.queues[0].qdisc.packets, stats.qdisc().packets);
    assert_eq!(stats.qdisc().drops, 30);
    bench.set(&QdiscSpec::default());
    assert_eq!(bench.device.active(), 4);
}

/// A new root qdisc counts from the start; what the device has sent it has sent.
#[test]
fn a_new_root_counts_from_the_start() {
    let bench = scripted(QdiscSpec::Pfifo { limit: 9 }, 1);
    send(&bench, 0, 5);
    bench.scripts[0].set_capacity(0);
    send(&bench, 0, 20);
    let before = bench.device.stats().qdisc();
    assert!(
        before.packets >= 5 && before.drops > 0 && before.requeues > 0,
        "{before:?}"
    );
    bench.set(&QdiscSpec::Pfifo { limit: 99 });
    let stats = bench.device.stats();
    let after = stats.qdisc();
    assert_eq!(
        (after.packets, after.bytes, after.drops, after.requeues),
        (0, 0, 0, 0)
    );
    assert_eq!((stats.tx_packets, stats.queued), (5, after.queued));
}

/// A queue's qdisc is a node of the device's tree: it comes and goes by its handle while the other
/// queues keep theirs, and a dump reads its statistics while a thread owns the queue.
#[test]
fn a_queue_is_a_class_of_the_tree() {
    let bench = scripted(QdiscSpec::default(), 2);
    let mq = Handle::new(1, 0);
    let mut spec = TreeSpec::new();
    spec.add(Handle::ROOT, mq, QdiscSpec::Mq).unwrap();
    let env = QdiscEnv::new(&bench.pool);
    let (mut tree, roots) = DeviceTree::new(spec, 2, &env).unwrap();
    bench
        .device
        .set_qdiscs(roots, &Clock::virtual_at(Time::ZERO))
        .unwrap();
    bench.set_capacity(0);
    send(&bench, 0, 40);
    let queues = || {
        let queues = bench.device.queues().iter();
        queues.map(|queue| queue.stats().qdisc).collect::<Vec<_>>()
    };
    let clock = Clock::virtual_at(Time::ZERO);
    let before = queues();
    let mut live = tree.on((&*bench.device, &clock));
    let far = live.add(mq.class(3), Handle::NONE, QdiscSpec::Pfifo { limit: 1 });
    assert!(matches!(far, Err(SpecError::NoQueue { class: 3, .. })));
    let tbf = live.add(mq.class(2), Handle::NONE, shaped(1000, 500, 300));
    let tbf = tbf.unwrap();
    let dump = |tree: &DeviceTree| {
        // Somebody owns the queue meanwhile.
        let classes = bench
            .device
            .with_qdisc(1, &Clock::virtual_at(Time::ZERO), |_, _| {
                tree.classes(&queues())
            });
        let classes = classes.unwrap().into_iter();
        classes
            .map(|c| (c.class, c.kind, c.stats.drops))
            .collect::<Vec<_>>()
    };
    let dropped = bench.device.stats().dropped();
    assert!(dropped > 0);
    assert_eq!(
        dump(&tree),
        [
            (Handle::ROOT, "mq", dropped),
            (mq.class(1), "pfifo_fast", 0),
            (mq.class(2), "tbf", dropped),
            (tbf.class(1), "bfifo", dropped),
        ]
    );
    assert_eq!(queues()[0], before[0]);
    let mut live = tree.on((&*bench.device, &clock));
    live.delete(tbf).unwrap();
    assert_eq!(dump(&tree).len(), 3);
    let stats = bench.device.stats();
    assert_eq!(40, stats.tx_packets + stats.dropped() + stats.queued);
    bench.set_capacity(usize::MAX);
    bench.check(40);
}
