//! A VPN's sending half: each peer has a queue of its own in front of the encryption, so that one
//! which floods delays itself alone, and packets are encrypted in the order in which they leave.
//! The flow of a packet is its peer ([`Packet::set_flow_hash`]), not what is inside. Run it with
//! `cargo run -p softnet-tc --example fair_peers`.

use std::sync::mpsc::{Receiver, Sender as Channel, channel};
use std::task::Waker;

use softnet::mem::{Packet, PacketList, Pool, PoolConfig};
use softnet::time::Clock;
use softnet::tx::{Features, Sender, Sent, TxRing, Xmit};
use softnet_tc::{FqSpec, QdiscSpec};

/// The driver: encrypts a packet for its peer, and sends it.
struct Tunnel {
    wire: Channel<(u32, u64, Vec<u8>)>,
    counter: u64,
}

impl TxRing for Tunnel {
    fn xmit(&mut self, packets: &mut PacketList, sent: &mut Sent) -> Xmit {
        while let Some(mut packet) = packets.pop_front() {
            sent.count(&packet);
            // In the place of a cipher. The number of a packet is that of its turn to leave, as a
            // receiver's window against replays wants it.
            self.counter += 1;
            let key = packet.mark() as u8;
            packet.data_mut().iter_mut().for_each(|byte| *byte ^= key);
            let message = (packet.mark(), self.counter, packet.data().to_vec());
            // A wire that nobody listens at.
            let _ = self.wire.send(message);
        }
        Xmit::Complete
    }

    /// Takes few bytes at a time: what waits, waits where it is sorted by peer.
    fn available(&mut self, _: softnet::time::Time) -> Option<u64> {
        Some(3000)
    }
}

/// A packet for a peer.
fn packet_for(peer: u32, pool: &Pool) -> Result<Packet, softnet::mem::Exhausted> {
    let mut packet = pool.packet(&[0; 1000])?;
    packet.set_mark(peer);
    packet.set_flow_hash(peer);
    Ok(packet)
}

pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    let pool = Pool::new(PoolConfig {
        buffers: 4096,
        buffer_size: 2048,
    })?;
    // A number of a peer is a flow of its own: no two of them share a queue.
    let fq = FqSpec {
        orphan_mask: u32::MAX,
        ..FqSpec::default()
    };
    let qdiscs = QdiscSpec::Fq(fq).instances(1, &pool)?;
    let (wire, receiver): (_, Receiver<_>) = channel();
    let clock = Clock::monotonic();
    let sender = Sender::builder().qdiscs(qdiscs).pool(&pool);
    let sender = sender.features(Features {
        mtu: 1420,
        ..Features::default()
    });
    let tunnel = Tunnel { wire, counter: 0 };
    let sender = sender.clock(clock.clone());
    let (out, mut runner) = sender.drive(vec![tunnel], Waker::noop().clone())?;

    // Peer 1 floods; peer 2 has one packet, and comes last.
    let mut packets = PacketList::new();
    for _ in 0..99 {
        packets.push_back(packet_for(1, &pool)?);
    }
    packets.push_back(packet_for(2, &pool)?);
    out.transmit(packets);
    while !out.device().is_empty() {
        runner.run(clock.now());
    }
    let order: Vec<_> = receiver.try_iter().collect();
    let turn = order.iter().position(|(peer, ..)| *peer == 2);
    let turn = turn.ok_or("the second peer's packet is lost")?;
    println!("99 packets wait for peer 1; the one for peer 2 leaves after {turn} of them");
    assert!(order.len() == 100 && turn < 20, "{turn} of {}", order.len());
    // Counted in the order in which they left.
    assert!(order.iter().map(|(_, counter, _)| *counter).eq(1..=100));
    Ok(())
}
