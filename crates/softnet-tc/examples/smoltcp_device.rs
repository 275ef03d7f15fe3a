//! Any device of smoltcp as a driver: many threads send through one queue, with a qdisc, what a
//! single-threaded [`phy::Device`] takes one by one. Run it with `cargo run -p softnet-tc --example
//! smoltcp_device`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Waker;

use smoltcp::phy::{Device, DeviceCapabilities, Loopback, Medium, RxToken, TxToken};
use smoltcp::time::Instant;
use softnet::mem::PacketList;
use softnet::tx::{Features, Sender, Sent, TxRing, Xmit};

/// The driver: a device, and a count of the frames that came back from it.
struct Phy<D> {
    device: D,
    received: Arc<AtomicUsize>,
}

impl<D: Device + Send> TxRing for Phy<D> {
    fn xmit(&mut self, packets: &mut PacketList, sent: &mut Sent) -> Xmit {
        while let Some(packet) = packets.pop_front() {
            let Some(token) = self.device.transmit(Instant::now()) else {
                // The program's loop, which receives, calls `TxQueue::wake`.
                packets.push_front(packet);
                return Xmit::Busy;
            };
            // The sender has no `scatter_gather`: `data` is all of it.
            let data = packet.data();
            token.consume(data.len(), |frame| frame.copy_from_slice(data));
            sent.count(&packet);
        }
        while let Some((token, _)) = self.device.receive(Instant::now()) {
            // In the place of smoltcp's `Interface::poll`.
            assert_eq!(token.consume(<[u8]>::len), 64);
            self.received.fetch_add(1, Ordering::Relaxed);
        }
        Xmit::Complete
    }
}

/// Abilities of a device, in Softnet's words.
fn features(capabilities: &DeviceCapabilities) -> Features {
    let header = match capabilities.medium {
        Medium::Ethernet => 14,
    };
    Features {
        mtu: capabilities.max_transmission_unit.saturating_sub(header) as u32,
        checksum: false,
        ..Features::default()
    }
}

pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    let device = Loopback::new(Medium::Ethernet);
    let features = features(&device.capabilities());
    let received = Arc::new(AtomicUsize::new(0));
    let phy = Phy {
        device,
        received: received.clone(),
    };
    let (out, mut runner) = Sender::builder()
        .features(features)
        .drive(vec![phy], Waker::noop().clone())?;
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let out = &out;
            scope.spawn(move || {
                for number in 0..25 {
                    let mut frame = [0; 64];
                    (frame[12], frame[62], frame[63]) = (8, thread, number);
                    let packet = out.packet(&frame).expect("the pool is large enough");
                    out.transmit(packet);
                }
            });
        }
    });
    while !out.device().is_empty() {
        runner.run(softnet::time::Time::ZERO);
    }
    let stats = out.device().stats();
    println!("{} frames went through the device", stats.tx_packets);
    assert_eq!((stats.tx_packets, stats.dropped()), (100, 0));
    assert_eq!(received.load(Ordering::Relaxed), 100);
    Ok(())
}
