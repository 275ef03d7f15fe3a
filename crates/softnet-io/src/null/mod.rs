//! The driver without a device: takes every packet, frees it, and receives none.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};
use softnet::mem::{Packet, PacketList};
use softnet::tx::{Features, Sent, TxRing, Xmit};
use softnet_engine::rx::{Polled, Receive, RxQueue};
use softnet_engine::{Opened, Settings};

use crate::Buffers;
use crate::driver::{ALL_MTUS, Driver};

/// A port without a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NullSpec;

/// A port without a device cannot have its files.
#[derive(Debug, thiserror::Error)]
#[error("cannot open a null port")]
pub struct NullError(#[from] io::Error);

impl Driver for NullSpec {
    type Rx = NullRx;
    type Tx = NullTx;
    type Error = NullError;

    const KIND: Option<&'static str> = Some("dummy");
    const NO_QUEUE: bool = true;
    const MTUS: (u32, u32) = ALL_MTUS;

    fn open(
        &self,
        settings: &Settings,
        queues: usize,
        _: &Buffers,
    ) -> Result<Opened<NullRx, NullTx>, NullError> {
        let Null { rx, tx, features } = Null::open(queues, settings.mtu)?;
        Ok(Opened { rx, tx, features })
    }

    fn conflicts(&self, _: &NullSpec) -> bool {
        false
    }

    fn of_kind(kind: &str, _: &str) -> Option<NullSpec> {
        (kind == "dummy").then_some(NullSpec)
    }
}

/// Queues of a port without a device.
#[derive(Debug)]
pub struct Null {
    /// One per queue.
    pub rx: Vec<NullRx>,
    /// One per queue.
    pub tx: Vec<NullTx>,
    /// It takes large frames and missing checksums, as they are not looked at.
    pub features: Features,
}

impl Null {
    /// A port with `queues` queues each way, for packets of up to `mtu` bytes.
    ///
    /// # Errors
    /// If the system has no file descriptors left.
    pub fn open(queues: usize, mtu: u32) -> io::Result<Null> {
        let features = Features {
            checksum: true,
            tso4: true,
            tso6: true,
            ecn: true,
            uso: true,
            scatter_gather: true,
            mtu,
        };
        let rx = (0..queues)
            .map(|_| NullRx::new())
            .collect::<io::Result<_>>()?;
        Ok(Null {
            rx,
            tx: (0..queues).map(|_| NullTx).collect(),
            features,
        })
    }
}

/// Never receives.
#[derive(Debug)]
pub struct NullRx {
    /// Never readable, so that a worker sleeps instead of polling this queue.
    never: OwnedFd,
}

impl NullRx {
    fn new() -> io::Result<NullRx> {
        Ok(NullRx {
            never: eventfd(0, EventfdFlags::CLOEXEC)?,
        })
    }
}

impl RxQueue for NullRx {
    fn poll(&mut self, _: &mut Receive<'_>) -> Polled {
        Polled::default()
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.never.as_fd())
    }
}

/// Counts packets as sent and frees them.
#[derive(Debug)]
pub struct NullTx;

impl TxRing for NullTx {
    fn xmit(&mut self, packets: &mut PacketList, sent: &mut Sent) -> Xmit {
        let taken = packets.take();
        sent.packets += taken.wire_packets();
        sent.bytes += taken.iter().map(Packet::wire_len).sum::<u64>();
        Xmit::Complete
    }
}

#[cfg(test)]
mod tests {
    use softnet::mem::{Pool, PoolConfig};

    use super::*;

    #[test]
    fn takes_counts_and_frees_everything() {
        let pool = Pool::new(PoolConfig {
            buffers: 8,
            buffer_size: 2048,
        })
        .unwrap();
        let mut packets = PacketList::new();
        pool.alloc_bulk(5, &mut packets);
        let mut list: PacketList = packets
            .into_iter()
            .map(|mut packet| {
                let _ = packet.append(&[0; 60]);
                packet
            })
            .collect();
        let mut null = Null::open(1, 1500).unwrap();
        let mut sent = Sent::default();
        assert_eq!(null.tx[0].xmit(&mut list, &mut sent), Xmit::Complete);
        assert_eq!(
            sent,
            Sent {
                packets: 5,
                bytes: 300,
                dropped: Vec::new()
            }
        );
        assert!(list.is_empty());
        assert_eq!(pool.stats().free, 8);
    }
}
