//! A device whose driver drops and stalls, and packets through it.

use std::time::Duration;

use softnet::mem::{PacketList, Pool, PoolConfig};
use softnet::qdisc::Qdisc;
use softnet::tx::{DeviceStats, Sender, TxRing};
use softnet_io::middleware::Faults;

pub(crate) fn pool_of(buffers: usize) -> Pool {
    Pool::new(PoolConfig {
        buffers,
        buffer_size: 2048,
    })
    .unwrap()
}

/// Frames of these lengths.
pub(crate) fn frames_of(pool: &Pool, lengths: impl IntoIterator<Item = usize>) -> PacketList {
    let frame = |length| {
        let mut packet = pool.alloc().unwrap();
        assert!(packet.append(&vec![2; length]));
        packet
    };
    lengths.into_iter().map(frame).collect()
}

/// Sends lists, ends stalls until nothing waits, and takes the device down. Returns what it
/// counted; all buffers are back then.
pub(crate) fn send_and_drain<R: TxRing + 'static, Q: Qdisc + 'static>(
    (ring, faults): (R, &Faults),
    qdisc: Q,
    pool: &Pool,
    lists: impl IntoIterator<Item = PacketList>,
) -> DeviceStats {
    let out = Sender::builder()
        .qdisc(qdisc)
        .pool(pool)
        .start(ring)
        .unwrap();
    for list in lists {
        out.transmit(list);
    }
    while out.device().queues()[0].waiting() != 0 {
        faults.resume();
        std::thread::yield_now();
    }
    let device = out.device().clone();
    out.stop(Duration::from_secs(60));
    assert!(faults.refused() > 0);
    assert_eq!(pool.stats().free, pool.stats().buffers);
    device.stats()
}
