//! Egress actions of a device, between `transmit` and the choice of a queue (the kernel's
//! `sch_handle_egress`).

use super::{Device, XmitResult};
use crate::mem::PacketList;
use crate::qdisc::Elsewhere;
use crate::time::Time;

/// Looks at everything that is sent through a device, before a queue is chosen. Called on the
/// sender's thread, by many at once: must not block. Only devices that have one pay for it.
pub trait Egress<R, Q>: Send + Sync {
    /// Takes what it wants out of `packets`; the rest goes its way. What it drops it counts at
    /// `device`. The result is that of what was taken.
    fn apply(&self, device: &Device<R, Q>, packets: &mut PacketList, now: Time) -> XmitResult;
}

/// The way of packets that actions of a qdisc's filters send to other links.
pub trait Outlet: Send + Sync + std::fmt::Debug {
    /// Takes all of it. Called by the owner of a transmit queue: must not block.
    fn deliver(&self, elsewhere: &mut Elsewhere, now: Time);
}

impl<R, Q> std::fmt::Debug for dyn Egress<R, Q> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Egress")
    }
}
