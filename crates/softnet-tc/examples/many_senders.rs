//! Many threads share one shaped transmit queue that ends in a UDP socket: no daemon, no lock that
//! a sender waits for, no packet lost to a full queue. Run it with `cargo run --release -p
//! softnet-tc --example many_senders`.

use std::net::UdpSocket;
use std::time::Duration;

use softnet::mem::{PacketList, Pool, PoolConfig};
use softnet::stats::DropReason;
use softnet::tx::{Sender, Sent, TxRing, Xmit};
use softnet_tc::{QdiscSpec, TbfSpec};

/// The driver: each packet's bytes become a datagram.
struct Udp(UdpSocket);

impl TxRing for Udp {
    fn xmit(&mut self, packets: &mut PacketList, sent: &mut Sent) -> Xmit {
        while let Some(packet) = packets.pop_front() {
            match self.0.send(packet.data()) {
                Ok(_) => sent.count(&packet),
                Err(_) => sent.drop(DropReason::DriverRefused, &packet),
            }
        }
        Xmit::Complete
    }
}

pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    let receiver = UdpSocket::bind("127.0.0.1:0")?;
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    socket.connect(receiver.local_addr()?)?;
    let pool = Pool::new(PoolConfig {
        buffers: 4096,
        buffer_size: 2048,
    })?;
    // For all senders together.
    let latency = Duration::from_millis(50);
    let tbf = TbfSpec::with_latency("100mbit".parse()?, "10kb".parse()?, latency);
    let qdiscs = QdiscSpec::Tbf(tbf).instances(1, &pool)?;
    let out = Sender::builder().qdiscs(qdiscs).pool(&pool);
    let out = out.start(Udp(socket))?;
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                for _ in 0..100 {
                    let Ok(packet) = out.packet(&[0; 1000]) else {
                        continue;
                    };
                    // Back-pressure: slower instead of lossy.
                    let queue = &out.device().queues()[0];
                    let waited = queue.wait_for_capacity(100, Duration::from_secs(1));
                    waited.expect("no driver calls this");
                    out.transmit(packet);
                }
            });
        }
    });
    let device = out.device().clone();
    out.stop(Duration::from_secs(1));
    println!("{:#?}", device.stats());
    Ok(())
}
