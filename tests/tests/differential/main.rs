//! The kernel's qdiscs and ours on the same packets: what leaves and in which order, what is
//! dropped, what is counted. Where they differ, the test says why, and checks both.
//!
//! A qdisc on a TAP device never fills, as the device takes every frame. So those under test hang
//! below a `tbf` that lets a few packets pass and then, for minutes, none; afterwards it is
//! changed to let all pass at once. Nothing in between depends on how fast the machine is.

mod device;
mod gated;
mod htb;
mod htb_pair;
mod stab;
mod times;

use std::convert::Infallible;

use softnet::mem::{Packet, Pool, PoolConfig};
use softnet::qdisc::QdiscStats;
use softnet::time::Time;
use softnet_tc::sim::{SimLink, Simulator};
use softnet_tc::{Handle, QdiscEnv, QdiscSpec, TbfSpec, Tree, TreeSpec};
use softnet_tests::oracle::TcStats;

/// A frame with a number, of an EtherType that nobody answers.
fn frame(number: u32, len: usize) -> Vec<u8> {
    let mut frame = vec![0; len.max(60)];
    frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, 2]);
    frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    frame[14..18].copy_from_slice(&number.to_be_bytes());
    frame
}

fn number(frame: &[u8]) -> u32 {
    u32::from_be_bytes(frame[14..18].try_into().expect("a number"))
}

fn handle(text: &str) -> Handle {
    text.parse().expect("a handle")
}

/// Notes what leaves, and when.
fn noted(left: &mut Vec<(u32, Time)>) -> impl FnMut(Time, &Packet) -> Result<(), Infallible> + '_ {
    |time, packet| {
        left.push((number(packet.data()), time));
        Ok(())
    }
}

/// Our tree in virtual time, with packets like the kernel's.
struct Ours {
    sim: Option<Simulator>,
    pool: Pool,
    left: Vec<(u32, Time)>,
    refused: Vec<u32>,
}

impl Ours {
    fn new(nodes: &[(&str, &str, QdiscSpec)]) -> Ours {
        let mut spec = TreeSpec::new();
        for (parent, name, qdisc) in nodes {
            spec.add(handle(parent), handle(name), qdisc.clone())
                .expect("a qdisc");
        }
        Ours::of(spec)
    }

    fn of(spec: TreeSpec) -> Ours {
        let pool = Pool::new(PoolConfig {
            buffers: 1024,
            buffer_size: 2048,
        })
        .expect("a pool");
        let env = QdiscEnv::new(&pool);
        let tree = Tree::build(spec, &env).expect("a tree");
        Ours {
            sim: Some(Simulator::new(tree, SimLink::default())),
            pool,
            left: Vec::new(),
            refused: Vec::new(),
        }
    }

    /// True if nothing was dropped meanwhile.
    fn send(&mut self, bytes: &[u8], priority: u32, now: Time) -> bool {
        let mut packet = self.pool.alloc().expect("a buffer");
        assert!(packet.append(bytes));
        packet.set_priority(priority);
        let before = self.stats(Handle::ROOT).drops;
        let Ours { sim, left, .. } = self;
        let sim = sim.as_mut().expect("it runs");
        let Ok(()) = sim.arrive(packet, now, &mut noted(left));
        let queued = self.stats(Handle::ROOT).drops == before;
        if !queued {
            self.refused.push(number(bytes));
        }
        queued
    }

    /// Lets leave what may leave up to `time`.
    fn run_until(&mut self, time: Time) {
        let Ours { sim, left, .. } = self;
        let sim = sim.as_mut().expect("it runs");
        let Ok(()) = sim.run_until(time, &mut noted(left));
    }

    fn change(&mut self, name: &str, qdisc: &QdiscSpec, now: Time) {
        let sim = self.sim.as_mut().expect("it runs");
        let (tree, cx) = sim.tree();
        tree.edit(cx.at(now))
            .change(handle(name), qdisc)
            .expect("a change");
    }

    /// The length of the packet that is first in a queue that keeps its order and drops what it
    /// refuses at once, of these that were sent.
    fn first_queued(&mut self, sent: &[(usize, u32)]) -> usize {
        let next = self
            .left
            .last()
            .map_or(0, |&(number, _)| number as usize + 1);
        let refused = &self.refused;
        let first = (next..sent.len()).find(|n| !refused.contains(&(*n as u32)));
        sent[first.expect("a packet is queued")].0.max(60)
    }

    fn stats(&mut self, class: Handle) -> QdiscStats {
        let (tree, _) = self.sim.as_mut().expect("it runs").tree();
        let classes = tree.classes();
        let class = classes.iter().find(|c| c.class == class);
        class.expect("the class").stats
    }

    /// Lets the rest leave.
    fn finish(&mut self) {
        let sim = self.sim.take().expect("it runs");
        let mut rest = Vec::new();
        let mut depart = |time: Time, packet: &Packet| {
            rest.push((number(packet.data()), time));
            Ok::<(), Infallible>(())
        };
        let Ok(report) = sim.finish(&mut depart);
        assert!(report.holds());
        self.left.extend(rest);
        assert_eq!(self.pool.stats().free, 1024, "a buffer was not freed");
    }
}

/// Our numbers as tc would show them.
fn as_tc(stats: QdiscStats) -> TcStats {
    TcStats {
        bytes: stats.bytes,
        packets: stats.packets,
        drops: stats.drops,
        overlimits: stats.overlimits,
        requeues: stats.requeues,
        backlog: stats.backlog,
        qlen: stats.qlen,
    }
}

/// A shaper that, after its burst, lets nothing pass for a while: a byte takes a second.
fn shut(burst: u64, limit: u64) -> TbfSpec {
    TbfSpec {
        rate: 1,
        burst,
        limit,
        ..TbfSpec::default()
    }
}

/// The same opened: all leaves at once.
fn open(limit: u64) -> TbfSpec {
    TbfSpec {
        rate: 1_250_000_000,
        burst: 1 << 20,
        limit,
        ..TbfSpec::default()
    }
}

/// Options for tc.
fn words(spec: &TbfSpec) -> String {
    let TbfSpec {
        rate, burst, limit, ..
    } = spec;
    format!("tbf rate {}bit burst {burst} limit {limit}", rate * 8)
}

/// Numbers that look random and are the same on every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, n: u64) -> u64 {
        // Marsaglia's xorshift.
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}
