//! Fate of packets, as the sender is told.

use crate::qdisc::Verdict;

/// Fate of the caller's own packets in a transmit call (`NET_XMIT_*`, INV-TX-9). The
/// packets are consumed in any case, and what the driver refuses later is in the device's
/// counters only. Ordered: of several, the last is the worst. (It may be ignored: every loss is
/// counted, and a sender that waits for capacity has no use for it.)
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum XmitResult {
    /// Accepted: sent, queued, stolen by an action, or pushed for the queue's owner.
    Success,
    /// Accepted, but the sender had better slow down: another packet was dropped for one of these,
    /// or much is waiting and the sender does not [yield](super::TxPolicy::yields).
    Congestion,
    /// At least one was dropped: by the qdisc, or because too many packets wait for adoption.
    Drop,
}

impl From<Verdict> for XmitResult {
    fn from(verdict: Verdict) -> XmitResult {
        match verdict {
            Verdict::Queued | Verdict::Stolen => XmitResult::Success,
            Verdict::Congestion => XmitResult::Congestion,
            Verdict::Dropped => XmitResult::Drop,
        }
    }
}
