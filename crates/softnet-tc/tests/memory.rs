//! Memory of large trees, in bytes that the program has asked its allocator for.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use softnet::mem::{Pool, PoolConfig};
use softnet::qdisc::{Cx, Qdisc};
use softnet::testing::frame;
use softnet::time::Time;
use softnet_tc::{
    CakeSpec, ClassSpec, DeviceTree, FqCodelSpec, FqPieSpec, FqSpec, Handle, HtbClassSpec,
    HtbSpec, QdiscEnv, QdiscSpec, SfqSpec, TreeSpec,
};

/// Counts the bytes that are in use.
struct Counting;

static IN_USE: AtomicUsize = AtomicUsize::new(0);

// SAFETY: the system's allocator, with a count beside it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        IN_USE.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: by the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: by the caller's promise.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// One test at a time: what another one allocates would be counted, too.
static ALONE: Mutex<()> = Mutex::new(());

const MB: usize = 1_000_000;
/// Leaves of a tree: more need other handles than those that are chosen.
const LEAVES: u16 = 10_000;

/// `htb` with so many classes, and such a qdisc at each.
fn tree(leaves: u16, qdisc: &QdiscSpec) -> TreeSpec {
    let root = Handle::new(1, 0);
    let mut spec = TreeSpec::new();
    let htb = QdiscSpec::Htb(HtbSpec::default());
    spec.add(Handle::ROOT, root, htb).unwrap();
    for minor in 1..=leaves {
        let class = ClassSpec::Htb(HtbClassSpec::new(1_000_000));
        spec.add_class(root, root.class(minor), class).unwrap();
        spec.add(root.class(minor), Handle::NONE, qdisc.clone())
            .unwrap();
    }
    spec
}

/// Bytes that so many devices with such a tree take, each with two queues in parallel; and that
/// its configuration takes.
fn measure(devices: usize, leaves: u16, qdisc: &QdiscSpec) -> (usize, usize) {
    let in_use = || IN_USE.load(Ordering::Relaxed);
    // As many buffers as a device has by default: what matters is how much memory they take.
    let pool = Pool::new(PoolConfig::default()).unwrap();
    let before = in_use();
    let mut configured = 0;
    let made: Vec<_> = (0..devices)
        .map(|_| {
            let env = QdiscEnv {
                parallel: true,
                ..QdiscEnv::new(&pool)
            };
            let without = in_use();
            let spec = tree(leaves, qdisc);
            configured += in_use() - without;
            DeviceTree::new(spec, 2, &env).unwrap()
        })
        .collect();
    let bytes = in_use() - before;
    drop(made);
    (bytes, configured)
}

fn shown(devices: usize, leaves: u16, qdisc: &QdiscSpec) -> usize {
    let (bytes, configured) = measure(devices, leaves, qdisc);
    let all = devices * usize::from(leaves);
    println!(
        "| {} | {all} | {:.1} MB | {} bytes | {:.1} MB |",
        qdisc.kind(),
        bytes as f64 / MB as f64,
        bytes / (2 * all),
        configured as f64 / MB as f64
    );
    bytes
}

fn kinds() -> [QdiscSpec; 6] {
    [
        QdiscSpec::Pfifo { limit: 1000 },
        QdiscSpec::FqCodel(FqCodelSpec::default()),
        QdiscSpec::FqPie(FqPieSpec::default()),
        QdiscSpec::Sfq(SfqSpec::default()),
        QdiscSpec::Cake(CakeSpec::default()),
        QdiscSpec::Fq(FqSpec::default()),
    ]
}

#[test]
fn ten_thousand_leaves_on_two_queues_take_a_hundred_megabytes() {
    let _alone = ALONE.lock();
    let bytes = kinds().map(|qdisc| (qdisc.kind(), shown(1, LEAVES, &qdisc)));
    for (kind, bytes) in bytes {
        // The tins of `cake` are in the qdisc itself.
        let most = if kind == "cake" { 150 } else { 100 };
        assert!(bytes <= most * MB, "{kind}: {bytes} bytes");
    }
}

/// Ten devices: a tree has at most 32,767 qdiscs whose handles are chosen.
#[test]
#[ignore = "takes a minute; .ci/long runs it"]
fn a_hundred_thousand_leaves_on_two_queues_take_a_gigabyte() {
    let _alone = ALONE.lock();
    let bytes = kinds().map(|qdisc| (qdisc.kind(), shown(10, LEAVES, &qdisc)));
    for (kind, bytes) in bytes {
        let most = if kind == "cake" { 1500 } else { 1000 };
        assert!(bytes <= most * MB, "{kind}: {bytes} bytes");
    }
}

/// No packet makes an allocation, whether its class borrows pages, finds none, or gives them back.
#[test]
fn packets_of_many_classes_allocate_nothing() {
    let _alone = ALONE.lock();
    let leaves = 2000;
    let pool = Pool::new(PoolConfig {
        buffers: 4096,
        ..PoolConfig::default()
    })
    .unwrap();
    let codel = QdiscSpec::FqCodel(FqCodelSpec::default());
    let env = QdiscEnv::new(&pool);
    let (_tree, mut roots) = DeviceTree::new(tree(leaves, &codel), 1, &env).unwrap();
    let root = &mut roots.instances[0];
    let mut cx = Cx::new(&pool);
    let mut now = Time::ZERO;
    let mut before = 0;
    for round in 0..3 {
        if round == 1 {
            // What grows with the first packets has grown.
            before = IN_USE.load(Ordering::Relaxed);
        }
        for minor in 1..=leaves {
            let mut packets = softnet::mem::PacketList::new();
            for flow in 0..2 {
                let mut packet = frame(&pool, flow as u8, 1, 1000, u32::from(minor));
                packet.set_priority(Handle::new(1, minor).raw());
                packet.set_flow_hash(u32::from(minor) << 16 | flow << 8);
                packets.push_back(packet);
            }
            root.enqueue(&mut packets, cx.at(now));
        }
        let mut sent = softnet::mem::PacketList::new();
        while root.stats().qlen > 0 {
            now = now + std::time::Duration::from_millis(10);
            root.dequeue(64, &mut sent, cx.at(now));
            sent.take();
        }
    }
    let after = IN_USE.load(Ordering::Relaxed);
    assert_eq!(after, before, "bytes in use grew or fell");
}
