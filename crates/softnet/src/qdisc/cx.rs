//! Context of a qdisc's calls: all that it is given besides packets.

use crate::mem::{PacketList, Pool};
use crate::stats::Dropped;
use crate::time::Time;

/// The context of a call of a qdisc. The owner of the queue has one, and sets the time.
#[derive(Debug)]
pub struct Cx {
    /// The time of the call.
    pub now: Time,
    /// Takes what is dropped, with the reason.
    pub dropped: Dropped,
    /// Takes packets that are to be enqueued at the root after the call (copies, for example).
    /// What is put here while those are enqueued is dropped as `recursion_limit`.
    pub reinject: PacketList,
    /// Buffers for packets that a qdisc makes: segments and copies.
    pub pool: Pool,
}

impl Cx {
    /// At time 0.
    pub fn new(pool: &Pool) -> Cx {
        Cx {
            now: Time::ZERO,
            dropped: Dropped::new(),
            reinject: PacketList::new(),
            pool: pool.clone(),
        }
    }

    /// This context, at `now`.
    #[inline]
    pub fn at(&mut self, now: Time) -> &mut Cx {
        self.now = now;
        self
    }
}
