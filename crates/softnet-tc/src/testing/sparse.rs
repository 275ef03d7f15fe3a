//! The delay of a sparse flow beside flows that send as much as they can.

use std::convert::Infallible;

use softnet::mem::Packet;
use softnet::time::Time;

use super::MS;
use crate::sim::{SimLink, Simulator, Sojourn};
use crate::tree::Tree;

/// Bytes a second of the link.
const RATE: u64 = 12_500_000;

/// Waits of packets of flow 128, 50 a second of 100 bytes, and of those of flows 0 to 127, which
/// together send twice what the link does, in ten seconds. `packet` makes one of a length and flow,
/// with the flow as its mark.
pub(crate) fn beside_bulk(tree: Tree, packet: impl Fn(usize, u32) -> Packet) -> [Sojourn; 2] {
    let link = SimLink {
        rate: Some(RATE),
        ..SimLink::default()
    };
    let mut simulator = Simulator::new(tree, link);
    let (mut sparse, mut bulk) = (Vec::new(), Vec::new());
    let mut depart = |time: Time, packet: &Packet| {
        let waited = time.since(packet.timestamp()).as_nanos() as u64;
        let of = if packet.mark() == 128 {
            &mut sparse
        } else {
            &mut bulk
        };
        of.push(waited);
        Ok::<(), Infallible>(())
    };
    let gap = 1514 * 1_000_000_000 / (2 * RATE);
    let mut due = 0;
    for n in 0..10_000_000_000 / gap {
        let time = Time(n * gap);
        if time.0 >= due {
            let Ok(()) = simulator.arrive(packet(100, 128), time, &mut depart);
            due += 20 * MS;
        }
        let Ok(()) = simulator.arrive(packet(1514, n as u32 * 31 % 128), time, &mut depart);
    }
    let Ok(report) = simulator.finish(&mut depart);
    assert!(report.holds());
    [Sojourn::of(&sparse), Sojourn::of(&bulk)]
}
