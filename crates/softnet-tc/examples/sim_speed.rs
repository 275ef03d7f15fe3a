//! Packets that the simulator takes through a tree of 100 classes in a second, beside a loop of the
//! same queue operations without it. Run it with
//! `cargo run --release -p softnet-tc --example sim_speed`.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use softnet::mem::{Packet, PacketList, Pool, PoolConfig};
use softnet::qdisc::{Cx, Qdisc};
use softnet::stats::DropCounters;
use softnet::time::Time;
use softnet_tc::sim::{Direction, Flow, Pattern, SimLink, Simulator, World};
use softnet_tc::{ClassSpec, Handle, HtbClassSpec, HtbSpec, QdiscEnv, QdiscSpec, Tree, TreeSpec};

const LEAVES: u16 = 90;
const SIZE: u16 = 200;
/// Packets of each flow in a second, and seconds.
const RATE: u64 = 20_000;
const SECONDS: u64 = 1;

type Failure = Box<dyn std::error::Error>;

/// Ten classes with nine leaves each.
fn tree(pool: &Pool) -> Result<Tree, Failure> {
    let mut spec = TreeSpec::new();
    let root = Handle::new(1, 0);
    spec.add(Handle::ROOT, root, QdiscSpec::Htb(HtbSpec::default()))?;
    let class = |rate| {
        let of = HtbClassSpec {
            rate,
            ceil: rate,
            burst: 100_000,
            cburst: 100_000,
            ..HtbClassSpec::new(rate)
        };
        ClassSpec::Htb(of)
    };
    for inner in 1..=10 {
        spec.add_class(root, Handle::new(1, inner), class(1_000_000_000))?;
    }
    for leaf in 0..LEAVES {
        let parent = Handle::new(1, 1 + leaf / 9);
        spec.add_class(parent, Handle::new(1, 100 + leaf), class(100_000_000))?;
    }
    Ok(Tree::build(spec, &QdiscEnv::new(pool))?)
}

fn flow(leaf: u16) -> Flow {
    Flow {
        rate: RATE * u64::from(SIZE),
        size: SIZE..=SIZE,
        start: Time(u64::from(leaf) * 500),
        duration: SECONDS * 1_000_000_000,
        pattern: Pattern::Constant,
        seed: 1,
        source: ([10, 0, 0, 1].into(), leaf),
        destination: ([10, 0, 0, 2].into(), 9),
        dscp: 0,
        priority: Handle::new(1, 100 + leaf).raw(),
        mark: 0,
        direction: Direction::Forward,
    }
}

fn simulated(pool: &Pool) -> Result<(u64, Duration), Failure> {
    let mut world = World::new(Simulator::new(tree(pool)?, SimLink::default()), pool);
    for leaf in 0..LEAVES {
        world.add_flow("", flow(leaf))?;
    }
    let start = Instant::now();
    let (report, _) = world.finish(&mut |_, _| Ok::<(), Infallible>(()))?;
    let time = start.elapsed();
    assert!(report.holds() && report.drops.is_empty(), "{report:?}");
    Ok((report.root().packets, time))
}

/// Each packet is made, enqueued and dequeued, with the calls that a queue makes of an arrival.
fn looped(pool: &Pool) -> Result<(u64, Duration), Failure> {
    let mut tree = tree(pool)?;
    let flows: Vec<(Flow, Packet)> = (0..LEAVES)
        .map(|leaf| {
            let flow = flow(leaf);
            let packet = flow.packet(SIZE, pool).ok_or("no buffer")?;
            Ok((flow, packet))
        })
        .collect::<Result<_, Failure>>()?;
    let (mut cx, drops) = (Cx::new(pool), DropCounters::new());
    let mut out = PacketList::new();
    let start = Instant::now();
    for round in 0..RATE * SECONDS {
        for (flow, of) in &flows {
            let now = flow.start.plus_nanos(round * 1_000_000_000 / RATE);
            let mut packet = pool.alloc()?;
            if !packet.append(of.data()) {
                return Err("no room".into());
            }
            packet.set_priority(flow.priority);
            packet.set_timestamp(now);
            let mut list = PacketList::from(packet);
            tree.enqueue(&mut list, cx.at(now));
            cx.dropped.settle(&drops);
            // The second call finds nothing more.
            tree.dequeue(1, &mut out, cx.at(now));
            tree.dequeue(1, &mut out, cx.at(now));
            drop(out.take());
        }
    }
    let time = start.elapsed();
    Ok((tree.stats().packets, time))
}

fn main() -> Result<(), Failure> {
    let pool = Pool::new(PoolConfig {
        buffers: 8192,
        buffer_size: 2048,
    })?;
    let rate = |(packets, time): (u64, Duration)| packets as f64 / time.as_secs_f64() / 1e6;
    let mut best = (0.0_f64, 0.0_f64);
    for _ in 0..5 {
        best.0 = best.0.max(rate(simulated(&pool)?));
        best.1 = best.1.max(rate(looped(&pool)?));
    }
    let (simulated, looped) = best;
    println!("simulated {simulated:.2} Mpps, a loop without it {looped:.2} Mpps");
    println!("that is {:.2} of it", simulated / looped);
    Ok(())
}
