//! Sends packets through an idle queue to a driver that frees them: what a transmit call costs,
//! for counting instructions (`.ci/instructions.sh`, `docs/results/instructions.md`).
//!
//! `valgrind --tool=callgrind target/release/transmit_loop COUNT QDISC [adopted|list]`: the
//! difference between two counts, divided by the difference of their numbers of packets, is the
//! cost of one packet, its allocation and its freeing included. With `list` a call sends 32
//! packets. With `adopted` the driver sends one more packet while it is called, so that the queue
//! is owned: that packet is pushed on the adoption list, and the owner adopts it. The cost of two
//! such packets, less that of one, is that of an adopted one.
//!
//! QDISC is a kind's name, with its default options, or one of [`qdisc`].
//!
//! A binary and no example: the examples of a package are built with its development dependencies,
//! and so with the preemption points of the core's tests. A package of its own: CI builds nothing
//! else with the release profile, which takes long.

use std::sync::{Arc, OnceLock, Weak};

use softnet::mem::{Exhausted, Packet, PacketList, Pool, PoolConfig};
use softnet::time::Time;
use softnet::tx::{Device, Sender, Sent, TxRing, Xmit};
use softnet_tc::{
    AnyQdisc, ClassSpec, DeviceTree, Handle, HtbClassSpec, HtbSpec, LinkDefaults, PrioSpec,
    QdiscEnv, QdiscKind, QdiscSpec, TbfSpec, TreeSpec,
};

/// Takes everything, at once.
struct Null {
    /// Set if the driver sends, too.
    again: Option<Again>,
}

/// Sends a packet in every other call.
struct Again {
    pool: Pool,
    device: Arc<OnceLock<Weak<Device<Null, AnyQdisc>>>>,
    sent: bool,
}

impl Again {
    #[cold]
    fn send(&mut self) {
        self.sent = !self.sent;
        if self.sent
            && let Some(device) = self.device.get().and_then(Weak::upgrade)
            && let Ok(packet) = packet(&self.pool)
        {
            device.transmit(packet.into(), Time::ZERO);
        }
    }
}

impl TxRing for Null {
    fn xmit(&mut self, packets: &mut PacketList, sent: &mut Sent) -> Xmit {
        sent.packets += packets.len() as u64;
        sent.bytes += packets.bytes();
        drop(packets.take());
        if let Some(again) = &mut self.again {
            again.send();
        }
        Xmit::Complete
    }
}

#[inline(always)]
fn packet(pool: &Pool) -> Result<Packet, Exhausted> {
    let mut packet = pool.alloc()?;
    packet.extend(120);
    Ok(packet)
}

/// Packets of one call with `list`.
const LIST: u64 = 32;
/// Bytes per second and bytes at once that nothing here reaches.
const RATE: u64 = 100_000_000_000;
const BURST: u64 = 1_000_000_000;

fn tbf() -> QdiscSpec {
    QdiscSpec::Tbf(TbfSpec {
        rate: RATE,
        burst: BURST,
        limit: 1_000_000,
        ..TbfSpec::default()
    })
}

/// `prio` with a shaped band.
fn tree() -> Result<QdiscSpec, Box<dyn std::error::Error>> {
    let mut tree = TreeSpec::new();
    let prio = QdiscSpec::Prio(PrioSpec::default());
    tree.add(Handle::ROOT, "1:".parse()?, prio)?;
    tree.add("1:2".parse()?, "20:".parse()?, tbf())?;
    Ok(QdiscSpec::Tree(tree))
}

/// A class with a rate below another one. What is not classified goes to it.
fn htb() -> Result<QdiscSpec, Box<dyn std::error::Error>> {
    let mut tree = TreeSpec::new();
    let root = HtbSpec {
        default: 2,
        ..HtbSpec::default()
    };
    let class = HtbClassSpec {
        burst: BURST,
        cburst: BURST,
        ..HtbClassSpec::new(RATE)
    };
    tree.add(Handle::ROOT, "1:".parse()?, QdiscSpec::Htb(root))?;
    tree.add_class("1:".parse()?, "1:1".parse()?, ClassSpec::Htb(class.clone()))?;
    tree.add_class("1:1".parse()?, "1:2".parse()?, ClassSpec::Htb(class))?;
    Ok(QdiscSpec::Tree(tree))
}

/// Parameters of the qdisc of this name, and true if it has an instance at each of two queues.
fn qdisc(name: &str) -> Result<(QdiscSpec, bool), Box<dyn std::error::Error>> {
    Ok(match name {
        "tbf" => (tbf(), false),
        "tbf-parallel" => (tbf(), true),
        "tree" => (tree()?, false),
        "htb" => (htb()?, false),
        "htb-parallel" => (htb()?, true),
        name => {
            let kind = QdiscKind::find(name).ok_or_else(|| format!("no qdisc '{name}'"))?;
            ((kind.default)(&LinkDefaults::default()), false)
        }
    })
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let count: u64 = args.next().ok_or("how many packets?")?.parse()?;
    let (spec, parallel) = qdisc(&args.next().ok_or("which qdisc?")?)?;
    let (adopted, list) = match args.next().as_deref() {
        None => (false, false),
        Some("adopted") => (true, false),
        Some("list") => (false, true),
        Some(other) => return Err(format!("'adopted', 'list' or nothing, not '{other}'").into()),
    };
    let pool = Pool::new(PoolConfig {
        buffers: 1024,
        buffer_size: 512,
    })?;
    let env = QdiscEnv {
        parallel,
        ..QdiscEnv::new(&pool)
    };
    let queues = if parallel { 2 } else { 1 };
    let qdiscs = DeviceTree::new(spec, queues, &env)?.1;
    let target = Arc::new(OnceLock::new());
    let ring = || Null {
        again: adopted.then(|| Again {
            pool: pool.clone(),
            device: target.clone(),
            sent: false,
        }),
    };
    let rings = (0..queues).map(|_| ring()).collect();
    let out = Sender::builder()
        .qdiscs(qdiscs)
        .pool(&pool)
        .start_all(rings)?;
    let _ = target.set(Arc::downgrade(out.device()));
    let each = if list { LIST } else { 1 };
    for _ in 0..count / each {
        let mut packets = PacketList::new();
        for _ in 0..each {
            packets.push_back(packet(&pool)?);
        }
        out.device().transmit(packets, Time::ZERO);
    }
    let sent = out.device().stats().tx_packets;
    let expected = if adopted {
        2 * count
    } else {
        count / each * each
    };
    if sent != expected {
        return Err(format!("{sent} of {expected} packets were sent").into());
    }
    Ok(())
}
