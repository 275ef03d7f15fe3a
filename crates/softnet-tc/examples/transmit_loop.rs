//! Sends packets one by one through an idle queue to a driver that frees them: what a transmit call costs, for counting instructions.
//!
//! `valgrind --tool=callgrind target/release/examples/transmit_loop COUNT
//! [pfifo|pfifo_fast|tbf|prio|tree|none]`: the difference between two counts, divided by the
//! difference of their numbers of packets, is the cost of one packet, its allocation and its
//! freeing included.

use softnet::mem::{PacketList, Pool, PoolConfig};
use softnet::time::{Clock, Time};
use softnet::tx::{DeviceConfig, Features, Sent, Standalone, TxPolicy, TxRing, Xmit};
use softnet_tc::{Handle, PrioSpec, QdiscSpec, TbfSpec, TreeSpec};

/// Takes everything, at once.
struct Null;

impl TxRing for Null {
    fn xmit(&mut self, packets: &mut PacketList, sent: &mut Sent) -> Xmit {
        sent.packets += packets.len() as u64;
        sent.bytes += packets.bytes();
        drop(packets.take());
        Xmit::Complete
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let count: u64 = args.next().ok_or("how many packets?")?.parse()?;
    let kind = args.next().unwrap_or_else(|| "pfifo".into());
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
        other => return Err(format!("no discipline '{other}'").into()),
    };
    let qdiscs = qdisc.instances(1, &pool)?;
    let config = DeviceConfig {
        name: "null".into(),
        features: Features::default(),
        policy: TxPolicy::default(),
    };
    let sender = Standalone::start(config, vec![Null], qdiscs, &pool, Clock::monotonic())?;
    for _ in 0..count {
        let mut packet = pool.alloc()?;
        packet.extend(120);
        sender.device().transmit(packet.into(), Time::ZERO);
    }
    let stats = sender.device().stats();
    if stats.tx_packets != count {
        return Err(format!("{} of {count} packets were sent", stats.tx_packets).into());
    }
    Ok(())
}
