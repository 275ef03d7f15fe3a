//! Context of a qdisc's calls: all that it is given besides packets.

use super::Elsewhere;
use crate::mem::{PacketList, Pool};
use crate::stats::Dropped;
use crate::time::Time;

/// The context of a call of a qdisc. The owner of the queue has one, and sets the time.
#[derive(Debug)]
pub struct Cx {
    /// The time of the call.
    pub now: Time,
    /// True while filters look at packets that arrive, which count without their Ethernet headers
    /// there.
    pub arriving: bool,
    /// Takes what is dropped, with the reason.
    pub dropped: Dropped,
    /// Takes packets that are to be enqueued at the root after the call (copies, for example).
    /// What is put here while those are enqueued is dropped as `recursion_limit`.
    pub reinject: PacketList,
    /// Wire packets among [`reinject`](Cx::reinject) that a qdisc has added by copying: they count
    /// as received once more.
    pub copied: u64,
    /// Takes packets that actions send to other links. The caller carries it out.
    pub elsewhere: Elsewhere,
    /// Buffers for packets that a qdisc makes: segments and copies.
    pub pool: Pool,
}

impl Cx {
    /// At time 0.
    pub fn new(pool: &Pool) -> Cx {
        Cx {
            now: Time::ZERO,
            arriving: false,
            dropped: Dropped::new(),
            reinject: PacketList::new(),
            copied: 0,
            elsewhere: Elsewhere::default(),
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
