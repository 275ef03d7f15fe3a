//! Memory of large trees, in bytes that the test has asked its allocator for, and how often.
//! `docs/results/memory.md` has the figures.

#![cfg(not(miri))]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use softnet::mem::{PacketList, Pool, PoolConfig};
use softnet::qdisc::{Cx, Next, Qdisc};
use softnet::testing::pool;
use softnet::time::Time;
use softnet_tc::{
    ClassSpec, DeviceTree, FqCodelSpec, Handle, HtbClassSpec, HtbSpec, QdiscEnv, QdiscSpec, Tree,
    TreeSpec, Xstat,
};

/// Counts for each thread: other tests, and the program that runs them, allocate at the same time.
struct Counting;

thread_local! {
    static IN_USE: Cell<usize> = const { Cell::new(0) };
    static CALLS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: the system's allocator, with counts beside it, which do not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        CALLS.set(CALLS.get() + 1);
        IN_USE.set(IN_USE.get().wrapping_add(layout.size()));
        // SAFETY: by the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        IN_USE.set(IN_USE.get().wrapping_sub(layout.size()));
        // SAFETY: by the caller's promise.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn codel() -> QdiscSpec {
    QdiscSpec::FqCodel(FqCodelSpec::default())
}

/// `htb` with so many classes, and an `fq_codel` at each.
fn tree(leaves: u16) -> TreeSpec {
    let root = Handle::new(1, 0);
    let mut spec = TreeSpec::new();
    let htb = QdiscSpec::Htb(HtbSpec::default());
    spec.add(Handle::ROOT, root, htb).unwrap();
    for minor in 1..=leaves {
        let (class, leaf) = (root.class(minor), Handle::new(minor + 1, 0));
        let rate = ClassSpec::Htb(HtbClassSpec::new(1_000_000));
        spec.add_class(root, class, rate).unwrap();
        spec.add(class, leaf, codel()).unwrap();
    }
    spec
}

/// Bytes that a device with a tree takes, its configuration included.
fn bytes(spec: impl FnOnce() -> TreeSpec, queues: usize) -> usize {
    let pool = pool(64);
    let before = IN_USE.get();
    let env = QdiscEnv {
        parallel: queues > 1,
        ..QdiscEnv::new(&pool)
    };
    let made = DeviceTree::new(spec(), queues, &env).unwrap();
    let bytes = IN_USE.get().wrapping_sub(before);
    drop((made, env));
    let left = IN_USE.get().wrapping_sub(before) as isize;
    assert!(left < 100_000, "{left} bytes stay");
    bytes
}

#[test]
fn ten_thousand_leaves_on_two_queues_take_a_hundred_megabytes() {
    for (queues, most) in [(1, 70_000_000), (2, 100_000_000)] {
        let bytes = bytes(|| tree(10_000), queues);
        println!("{queues} queues: {bytes} bytes");
        assert!(bytes <= most, "{bytes} bytes on {queues} queues");
    }
}

/// One alone has a page for each of its flows, as it had a table before.
#[test]
fn one_qdisc_takes_what_its_flows_take() {
    let bytes = bytes(|| codel().into(), 1);
    println!("one: {bytes} bytes");
    assert!((1024 * 72..100_000).contains(&bytes), "{bytes} bytes");
}

/// No packet makes an allocation, whether its flow has a page, borrows one, or finds none.
#[test]
fn packets_of_many_qdiscs_allocate_nothing() {
    // A page for each sixteenth flow of 200: there are 250.
    const QDISCS: usize = 250;
    let flows: Vec<u16> = (0..1024).step_by(16).collect();
    let pool = Pool::new(PoolConfig {
        buffers: 20_000,
        buffer_size: 512,
    })
    .unwrap();
    let env = QdiscEnv::new(&pool);
    let root = Handle::new(1, 0);
    let build = |_| {
        let mut spec = TreeSpec::new();
        spec.add(Handle::ROOT, root, codel()).unwrap();
        Tree::build(spec, &env).unwrap()
    };
    let mut trees: Vec<Tree> = (0..QDISCS).map(build).collect();
    let shared = |tree: &Tree| {
        let xstats = tree.xstats(root).unwrap();
        xstats.value(Xstat::SharedPackets).unwrap()
    };
    let mut cx = Cx::new(&pool);
    for round in 1..=4 {
        let before = CALLS.get();
        let now = Time(round * 1_000_000);
        for tree in &mut trees {
            let mut packets = PacketList::new();
            for &flow in &flows {
                let mut packet = pool.alloc().unwrap();
                packet.extend(100);
                packet.set_priority(root.class(flow + 1).raw());
                packets.push_back(packet);
            }
            tree.enqueue(&mut packets, cx.at(now));
        }
        for tree in &mut trees {
            let mut sent = PacketList::new();
            assert_eq!(tree.dequeue(100, &mut sent, cx.at(now)), Next::Idle);
            assert_eq!(sent.len(), flows.len());
        }
        let calls = CALLS.get() - before;
        // The pool makes what it has for a thread with the first packets.
        assert!(round == 1 || calls == 0, "{calls} allocations");
    }
    let shared: u64 = trees.iter().map(shared).sum();
    let all = 4 * (QDISCS * flows.len()) as u64;
    assert!((all / 10..all / 2).contains(&shared), "{shared} of {all}");
}
