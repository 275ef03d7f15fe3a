//! The sending half of a driver.

use crate::mem::PacketList;
use crate::stats::DropReason;
use crate::time::Time;

/// Whether the driver took everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Xmit {
    /// All packets were taken (sent, or dropped and counted).
    Complete,
    /// The ring is full: the rest is still in the list, in order. The driver calls [`TxQueue::wake`](super::TxQueue::wake) when there is room.
    Busy,
}

/// What a driver did with a batch. Counts are wire packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(align(16))]
pub struct Sent {
    /// Handed to the device.
    pub packets: u64,
    /// Their bytes on the wire ([`Packet::wire_len`](crate::mem::Packet::wire_len)).
    pub bytes: u64,
    /// Refused for good and freed, with the reason. A driver that has several reasons in one batch reports the last.
    pub dropped: Option<(DropReason, u64)>,
}

/// One transmit queue of a port. Used by one thread at a time (whoever runs the [`TxQueue`](super::TxQueue)).
pub trait TxRing: Send {
    /// Sends packets from the front of `packets`, without blocking, and takes out of the list what it sent or dropped.
    /// The last packet of the list ends a batch: a driver that holds back its notification sends it then.
    fn xmit(&mut self, packets: &mut PacketList, sent: &mut Sent) -> Xmit;

    /// How many bytes the ring should be given now; more stays in the discipline. `Some(0)`: none, until the driver calls
    /// [`TxQueue::wake`](super::TxQueue::wake). None, as here: no limit, for a driver that is done with its packets when `xmit` returns. See
    /// [`ByteLimited`](super::ByteLimited).
    fn available(&mut self, _now: Time) -> Option<u64> {
        None
    }

    /// Called by the watchdog when the ring has been [busy](Xmit::Busy) for too long (`ndo_tx_timeout`): the driver gets its device going again, and gives up
    /// what it can do nothing about. The ring is then tried again.
    fn restart(&mut self, _now: Time) {}
}
