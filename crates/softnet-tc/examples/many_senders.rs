//! Many threads share one shaped transmit queue that ends in a UDP socket: no daemon, no lock that
//! a sender waits for, no packet lost to a full queue. Run it with `cargo run --release -p
//! softnet-tc --example many_senders`.

use std::net::UdpSocket;
use std::time::Duration;

use softnet::mem::{PacketList, Pool, PoolConfig};
use softnet::stats::DropReason;
use softnet::time::Clock;
use softnet::tx::{DeviceConfig, Features, Sent, Standalone, TxPolicy, TxRing, Xmit};
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

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let receiver = UdpSocket::bind("127.0.0.1:0")?;
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    socket.connect(receiver.local_addr()?)?;
    let (pool, clock) = (
        Pool::new(PoolConfig {
            buffers: 4096,
            buffer_size: 2048,
        })?,
        Clock::monotonic(),
    );
    // 100 Mbit/s for all senders together.
    let tbf = TbfSpec {
        rate: 12_500_000,
        burst: 10_000,
        limit: 200_000,
        peakrate: None,
        mtu: 0,
        link: Default::default(),
    };
    let qdiscs = QdiscSpec::Tbf(tbf).instances(1, &pool)?;
    let config = DeviceConfig {
        name: "udp0".into(),
        features: Features::default(),
        policy: TxPolicy::default(),
    };
    let out = Standalone::start(config, vec![Udp(socket)], qdiscs, &pool, clock.clone())?;
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                for _ in 0..100 {
                    let Ok(mut packet) = pool.alloc() else {
                        continue;
                    };
                    packet.append(&[0; 1000]);
                    // Back-pressure: slower instead of lossy.
                    out.device().queues()[0].wait_for_capacity(100, Duration::from_secs(1));
                    out.device().transmit(packet.into(), clock.now());
                }
            });
        }
    });
    let device = out.device().clone();
    out.stop(Duration::from_secs(1));
    println!("{:#?}", device.stats());
    Ok(())
}
