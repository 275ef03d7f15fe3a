//! Sends packets one by one through an idle queue to a driver that frees them: what a transmit
//! call costs, for counting instructions (`.ci/instructions.sh`, `docs/results/instructions.md`).
//!
//! `valgrind --tool=callgrind target/release/transmit_loop COUNT QDISC [adopted]`: the difference
//! between two counts, divided by the difference of their numbers of packets, is the cost of one
//! packet, its allocation and its freeing included. With `adopted` the driver sends one more
//! packet while it is called, so that the queue is owned: that packet is pushed on the adoption
//! list, and the owner adopts it. The cost of two such packets, less that of one, is that of an
//! adopted one.
//!
//! A binary and no example: the examples of a package are built with its development dependencies,
//! and so with the preemption points of the core's tests.

use std::sync::{Arc, OnceLock, Weak};

use softnet::mem::{Exhausted, Packet, PacketList, Pool, PoolConfig};
use softnet::time::Time;
use softnet::tx::{Device, Sender, Sent, TxRing, Xmit};
use softnet_tc::{AnyQdisc, Handle, PrioSpec, QdiscSpec, TbfSpec, TreeSpec};

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

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let count: u64 = args.next().ok_or("how many packets?")?.parse()?;
    let kind = args.next().ok_or("which qdisc?")?;
    let adopted = match args.next().as_deref() {
        None => false,
        Some("adopted") => true,
        Some(other) => return Err(format!("'adopted' or nothing, not '{other}'").into()),
    };
    let pool = Pool::new(PoolConfig {
        buffers: 1024,
        buffer_size: 512,
    })?;
    let tbf = TbfSpec {
        rate: 100_000_000_000,
        burst: 1_000_000_000,
        limit: 1_000_000,
        ..TbfSpec::default()
    };
    let qdisc = match kind.as_str() {
        "pfifo" => QdiscSpec::Pfifo { limit: 1000 },
        "pfifo_fast" => QdiscSpec::PfifoFast { limit: 1000 },
        "tbf" => QdiscSpec::Tbf(tbf),
        "prio" => QdiscSpec::Prio(PrioSpec::default()),
        // A shaped band.
        "tree" => {
            let mut tree = TreeSpec::new();
            tree.add(
                Handle::ROOT,
                "1:".parse()?,
                QdiscSpec::Prio(PrioSpec::default()),
            )?;
            tree.add("1:2".parse()?, "20:".parse()?, QdiscSpec::Tbf(tbf))?;
            QdiscSpec::Tree(tree)
        }
        "none" => QdiscSpec::Noqueue,
        other => return Err(format!("no qdisc '{other}'").into()),
    };
    let qdiscs = qdisc.instances(1, &pool)?;
    let target = Arc::new(OnceLock::new());
    let ring = Null {
        again: adopted.then(|| Again {
            pool: pool.clone(),
            device: target.clone(),
            sent: false,
        }),
    };
    let out = Sender::builder().qdiscs(qdiscs).pool(&pool).start(ring)?;
    let _ = target.set(Arc::downgrade(out.device()));
    for _ in 0..count {
        out.device().transmit(packet(&pool)?.into(), Time::ZERO);
    }
    let sent = out.device().stats().tx_packets;
    let expected = if adopted { 2 * count } else { count };
    if sent != expected {
        return Err(format!("{sent} of {expected} packets were sent").into());
    }
    Ok(())
}
