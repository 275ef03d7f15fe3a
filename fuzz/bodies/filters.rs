//! Filters of a `prio` against a plain reading of what they mean, on one packet.
//!
//! Input: numbers that say which filters to add and what the packet is; its last bytes are the
//! frame's, or change it. Where it ends, zeros follow. Values are few, so that many match.

// By their paths: the tests have this file, too.
#[path = "filters/decide.rs"]
mod decide;
#[path = "filters/input.rs"]
mod input;
#[path = "filters/matches.rs"]
mod matches;

use softnet::mem::{Packet, PoolConfig};
use softnet::qdisc::{Cx, Qdisc};
use softnet::stats::DropCounters;
use softnet::time::Time;
use softnet_tc::{FilterOp, FilterSpec, Handle, PrioSpec, QdiscEnv, QdiscSpec, Tree, TreeSpec};

use decide::{Decision, decide};
use input::Input;
use matches::View;

const ROOT: Handle = Handle::new(1, 0);

pub(crate) fn run(input: &[u8]) {
    let mut input = Input(input);
    let pool = softnet::mem::Pool::new(PoolConfig {
        buffers: 8,
        buffer_size: 2048,
    });
    let pool = pool.expect("a small pool");
    let mut spec = TreeSpec::new();
    let mut priomap = [14; 16];
    priomap[0] = 15;
    let prio = QdiscSpec::Prio(PrioSpec { bands: 16, priomap });
    spec.add(Handle::ROOT, ROOT, prio).expect("a prio");
    let mut added: Vec<FilterSpec> = Vec::new();
    for _ in 0..input.below(12) {
        let mut filter = input.filter();
        if let Ok(key) = spec.put_filter(FilterOp::Add, filter.clone()) {
            (filter.prio, filter.handle) = (key.prio, key.handle);
            added.push(filter);
        }
    }
    let mut tree = Tree::build(spec, &QdiscEnv::new(&pool)).expect("a tree");
    let (mark, priority) = (u32::from(input.below(5)), u32::from(input.below(4)));
    let cut = usize::from(input.below(64));
    let mut frame = input.frame();
    frame.truncate(1000);
    let mut packet = packet(&pool, &frame, cut);
    packet.set_mark(mark);
    packet.set_priority(priority);
    let view = View {
        frame: &frame,
        first: if cut == 0 {
            frame.len()
        } else {
            cut.min(frame.len())
        },
        mark,
        priority,
    };
    let (expected, hits) = decide(&added, &view);

    let mut cx = Cx::new(&pool);
    tree.enqueue(&mut packet.into(), cx.at(Time::ZERO));
    let classes = tree.classes();
    let found = classes
        .iter()
        .find(|c| c.class != Handle::ROOT && c.stats.qlen == 1);
    let found = found.map(|class| class.class.minor());
    let reasons = DropCounters::new();
    cx.dropped.settle(&reasons);
    let (minor, reason) = match expected {
        Decision::Class(minor) if (1..=16).contains(&minor) => (Some(minor), vec![]),
        Decision::Class(_) => (Some(16), vec![]),
        Decision::None => (Some(priomap[priority as usize] as u16 + 1), vec![]),
        Decision::Drop(reason) => (None, vec![(reason, 1)]),
    };
    assert_eq!(
        (found, reasons.nonzero()),
        (minor, reason),
        "{added:#?} {view:?}"
    );
    let mut counted: Vec<_> = tree
        .filters()
        .map(|(f, stats)| (f.key(), stats.packets))
        .collect();
    let mut expected: Vec<_> = added.iter().map(FilterSpec::key).zip(hits).collect();
    counted.sort_unstable();
    expected.sort_unstable();
    assert_eq!(counted, expected, "{added:#?} {view:?}");
}

/// A packet, whose first segment ends after `cut` bytes; 0: has them all.
fn packet(pool: &softnet::mem::Pool, frame: &[u8], cut: usize) -> Packet {
    let mut packet = pool.alloc().expect("a buffer");
    if cut == 0 || cut >= frame.len() {
        assert!(packet.append(frame));
        return packet;
    }
    assert!(packet.append(&frame[..cut]));
    let mut rest = pool.alloc().expect("a buffer");
    assert!(rest.append(&frame[cut..]));
    packet.append_segment(rest);
    packet
}
