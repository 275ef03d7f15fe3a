//! `drr`, `qfq` and `ets` above queues whose packets leave a turn at a time (`pfifo`), and above
//! others, of which they take packet by packet.

use proptest::prelude::*;

use softnet::mem::{Packet, PacketList};
use softnet::qdisc::*;
use softnet::testing::pool;
use softnet::time::Time;

use crate::testing::alone::*;
use crate::testing::large;
use crate::*;

const WEIGHTS: [u32; 3] = [1, 8, 300];
const LENGTHS: [u32; 3] = [512, 1514, 6000];

/// Classes with these weights and quanta, each with a queue of this kind.
fn tree(kind: u8, classes: &[(usize, usize)], below: &QdiscSpec) -> QdiscSpec {
    let quanta: Vec<u32> = classes.iter().map(|&(_, length)| LENGTHS[length]).collect();
    let root = match kind {
        0 => QdiscSpec::Drr,
        1 => QdiscSpec::Qfq,
        _ => {
            let ets = EtsSpec {
                bands: classes.len() as u16,
                strict: 0,
                priomap: [0; 16],
                ..EtsSpec::default()
            };
            QdiscSpec::Ets(ets.with_quanta(&quanta, &LinkDefaults::default()))
        }
    };
    let mut tree = TreeSpec::new();
    let name = tree.add(Handle::ROOT, Handle::new(1, 0), root).unwrap();
    for (minor, &(weight, length)) in (1..).zip(classes) {
        let class = name.class(minor);
        let spec = match kind {
            0 => Some(ClassSpec::Drr(DrrClassSpec {
                quantum: LENGTHS[length],
            })),
            1 => Some(ClassSpec::Qfq(QfqClassSpec {
                weight: WEIGHTS[weight],
                maxpkt: LENGTHS[length],
            })),
            _ => None,
        };
        if let Some(spec) = spec {
            tree.add_class(name, class, spec).unwrap();
        }
        tree.add(class, Handle::NONE, below.clone()).unwrap();
    }
    QdiscSpec::Tree(tree)
}

#[derive(Clone, Debug)]
enum Step {
    /// So many packets of this length for a class.
    Enqueue(usize, usize, usize),
    /// A budget.
    Dequeue(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let enqueue = (0..16_usize, 60..1600_usize, 1..8_usize);
    let step = prop_oneof![
        enqueue.prop_map(|(class, len, times)| Step::Enqueue(class, len, times)),
        (1..20_usize).prop_map(Step::Dequeue),
    ];
    prop::collection::vec(step, 1..120)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// The same packets leave, and there is more at the same times.
    #[test]
    fn a_turn_sends_what_it_does_packet_by_packet(
        kind in 0..3_u8,
        classes in prop::collection::vec((0..3_usize, 0..3_usize), 1..16),
        steps in steps(),
    ) {
        let pool = pool(2048);
        let below = [
            QdiscSpec::Pfifo { limit: 1 << 20 },
            QdiscSpec::Bfifo { limit: 1 << 40 },
        ];
        let mut both = below.map(|below| build(tree(kind, &classes, &below), &pool));
        let mut context = cx(Time::ZERO);
        let mut mark = 0;
        for step in steps.into_iter().chain([Step::Dequeue(usize::MAX >> 1)]) {
            let results = both.each_mut().map(|q| match step {
                Step::Enqueue(class, len, times) => {
                    let minor = 1 + (class % classes.len()) as u16;
                    let priority = Handle::new(1, 0).class(minor).raw();
                    let each = (mark..).take(times).map(|mark| {
                        if len < 1500 {
                            return packet(&pool, len, priority, mark);
                        }
                        let mut large = large(&pool);
                        large.set_priority(priority);
                        large.set_mark(mark);
                        large
                    });
                    let mut list: PacketList = each.collect();
                    q.enqueue(&mut list, &mut context);
                    (Vec::new(), None, *q.stats())
                }
                Step::Dequeue(budget) => {
                    let mut out = PacketList::new();
                    let next = q.dequeue(budget, &mut out, &mut context);
                    let marks: Vec<u32> = out.iter().map(Packet::mark).collect();
                    (marks, Some((next, q.peek(Time::ZERO))), *q.stats())
                }
            });
            if let Step::Enqueue(_, _, times) = step {
                mark += times as u32;
            }
            let [turns, packets] = results;
            prop_assert_eq!(turns, packets);
        }
        prop_assert_eq!(both[0].stats().qlen, 0);
        prop_assert_eq!(pool.stats().free, 2048);
    }
}
