//! The sending half of a driver.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::device::Ingress;
use super::waker::RingWaker;
use crate::mem::{Packet, PacketList};
use crate::stats::DropReason;
use crate::time::Time;

/// Answer of a driver: it took everything, or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Xmit {
    /// All packets were taken (sent, or dropped and counted).
    Complete,
    /// The ring is full: the rest is still in the list, in order. When it has capacity again the
    /// driver calls the [`RingWaker`] that it was [bound](TxRing::bind) to, or the worker sees it
    /// at the ring's [file](TxRing::file). A driver that wants others to have their turn says so,
    /// too, and calls its waker at once; without a queue (`noqueue`) it is offered the rest as long
    /// as it takes any.
    Busy,
}

/// Account of a batch by its driver. Counts are wire packets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[repr(C, align(16))]
pub struct Sent {
    /// Handed to the device.
    pub packets: u64,
    /// Their bytes on the wire ([`Packet::wire_len`](crate::mem::Packet::wire_len)).
    pub bytes: u64,
    /// Refused for good and freed, by reason.
    pub dropped: Vec<(DropReason, u64)>,
}

impl Sent {
    /// Counts a packet that was handed to the device.
    #[inline]
    pub fn count(&mut self, packet: &Packet) {
        let (bytes, packets) = packet.wire();
        self.packets += packets;
        self.bytes += bytes;
    }

    /// Counts a packet that is refused for good. The driver frees it.
    #[cold]
    pub fn drop(&mut self, reason: DropReason, packet: &Packet) {
        let packets = packet.wire_packets();
        match self.dropped.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, count)) => *count += packets,
            None => self.dropped.push((reason, packets)),
        }
    }
}

/// A file that says when a ring has capacity again.
#[derive(Debug)]
pub struct RingFile {
    /// A descriptor for the watching alone (`try_clone` of the ring's own): the same file may be
    /// watched for packets that arrive, and outlives the ring for a moment.
    pub fd: OwnedFd,
    /// Event to watch it for.
    pub interest: Interest,
}

/// Event that a file is watched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// Readable: an event descriptor that the other side writes.
    Readable,
    /// Writable: a socket that takes frames again.
    Writable,
}

/// One transmit queue of a port. Used by one thread at a time: the owner of the
/// [`TxQueue`](super::TxQueue).
///
/// A call that panics, where the program unwinds, takes the queue out of use, until it is taken
/// down and up again. What is on the queue's lists, the batch among it, is dropped as
/// [`DropReason::QdiscReset`]; what the driver has taken out of the list is its own to count.
pub trait TxRing: Send {
    /// Sends packets from the front of `packets`, without blocking, and takes out of the list
    /// what it sent or dropped. The last packet of the list ends a batch: a driver that holds
    /// back its notification sends it then.
    fn xmit(&mut self, packets: &mut PacketList, sent: &mut Sent) -> Xmit;

    /// Bytes that the ring should be given now; what is beyond them, but for the rest of a
    /// packet, stays in the qdisc, where it can be overtaken. `Some(0)`: none, until the driver
    /// wakes the queue. None, as here: no limit, for a driver that is done with its packets when
    /// `xmit` returns. One that is done with them later frees here, in bulk, what its device has
    /// completed.
    fn available(&mut self, _now: Time) -> Option<u64> {
        None
    }

    /// Called by the watchdog when the ring has been [busy](Xmit::Busy) for too long
    /// (`ndo_tx_timeout`): the driver gets its device going again, and gives up what it can do
    /// nothing about. The ring is then tried again.
    fn restart(&mut self, _now: Time) {}

    /// Gives the ring the object to call when it has capacity again. Called once, by the device
    /// that the ring is given to, before anything is sent.
    fn bind(&mut self, _waker: RingWaker) {}

    /// Gives a ring of a link without a device the place that its packets go to. Called before
    /// anything is sent.
    fn connect(&mut self, _to: Arc<dyn Ingress>) {}

    /// The file by which the device's worker sees that the ring has capacity again, for a driver
    /// that cannot call its waker. Asked before the ring is given away. The worker looks at it
    /// when the file becomes ready, not again while it stays so: after [`Xmit::Busy`] it must
    /// become ready once more.
    ///
    /// # Errors
    /// If the descriptor cannot be duplicated.
    fn file(&self) -> io::Result<Option<RingFile>> {
        Ok(None)
    }
}
