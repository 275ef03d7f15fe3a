//! The driver of links without a device: `ifb`, `vlan` and `lo`. Its ring gives all that is sent
//! back to the engine; see [`Virtual`].

use std::convert::Infallible;
use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use softnet::mem::PacketList;
use softnet::stats::DropReason;
use softnet::time::Time;
use softnet::tx::{Features, Ingress, Sent, TxRing, Xmit};
use softnet_engine::rx::{NextPoll, Polled, Receive, RxQueue};
use softnet_engine::{Opened, Settings, Virtual};

use crate::Buffers;
use crate::driver::{ALL_MTUS, Driver};

/// MTU of `lo`.
pub const LOOPBACK_MTU: u32 = 65_536;

/// A link without a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VirtualSpec(pub Virtual);

impl Driver for VirtualSpec {
    type Rx = NoRx;
    type Tx = GivingTx;
    type Error = Infallible;

    const NO_QUEUE: bool = true;

    fn open(
        &self,
        settings: &Settings,
        queues: usize,
        _: &Buffers,
    ) -> Result<Opened<NoRx, GivingTx>, Infallible> {
        let features = Features {
            checksum: true,
            tso4: true,
            tso6: true,
            ecn: true,
            uso: true,
            scatter_gather: true,
            mtu: settings.mtu,
        };
        Ok(Opened {
            rx: Vec::new(),
            tx: (0..queues).map(|_| GivingTx::default()).collect(),
            features,
        })
    }

    fn conflicts(&self, other: &VirtualSpec) -> bool {
        self == other && self.0 != Virtual::Ifb
    }

    fn of_kind(kind: &str, _: &str) -> Option<VirtualSpec> {
        (kind == "ifb").then_some(VirtualSpec(Virtual::Ifb))
    }

    fn kind(&self) -> Option<&'static str> {
        match self.0 {
            Virtual::Ifb => Some("ifb"),
            Virtual::Loopback => None,
            Virtual::Vlan { .. } => Some("vlan"),
        }
    }

    fn no_queue(&self) -> bool {
        self.0 != Virtual::Ifb
    }

    fn mtus(&self) -> (u32, u32) {
        match self.0 {
            Virtual::Loopback => (0, LOOPBACK_MTU),
            Virtual::Ifb => ALL_MTUS,
            Virtual::Vlan { .. } => Self::MTUS,
        }
    }

    fn virtual_link(&self) -> Option<Virtual> {
        Some(self.0.clone())
    }

    fn rename_parent(&mut self, name: &str) {
        if let Virtual::Vlan { parent, .. } = &mut self.0 {
            name.clone_into(parent);
        }
    }
}

/// Nothing is received: there is no such queue.
#[derive(Debug)]
pub enum NoRx {}

impl RxQueue for NoRx {
    fn poll(&mut self, _: &mut Receive<'_>) -> Polled {
        Polled {
            next: NextPoll::At(Time::MAX),
            ..Polled::default()
        }
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// Gives back what is sent.
#[derive(Default)]
pub struct GivingTx(Option<Arc<dyn Ingress>>);

impl fmt::Debug for GivingTx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GivingTx")
    }
}

impl TxRing for GivingTx {
    fn xmit(&mut self, packets: &mut PacketList, sent: &mut Sent) -> Xmit {
        let mut all = packets.take();
        let (mut count, mut bytes) = (0, 0);
        for packet in all.iter() {
            let (len, wire_packets) = packet.wire();
            (count, bytes) = (count + wire_packets, bytes + len);
        }
        let reason = match &self.0 {
            Some(to) => {
                to.receive_later(&mut all);
                DropReason::CpuBacklog
            }
            None => DropReason::NoForward,
        };
        // What the worker has no place for; as `netif_rx`, it waits for nobody.
        for packet in all.iter() {
            let (len, wire_packets) = packet.wire();
            (count, bytes) = (count - wire_packets, bytes - len);
            sent.drop(reason, packet);
        }
        sent.packets += count;
        sent.bytes += bytes;
        Xmit::Complete
    }

    fn connect(&mut self, to: Arc<dyn Ingress>) {
        self.0 = Some(to);
    }

    fn file(&self) -> io::Result<Option<softnet::tx::RingFile>> {
        Ok(None)
    }
}
