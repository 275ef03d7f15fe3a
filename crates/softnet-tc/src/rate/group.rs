//! One limit for many queues: of several ports, and of whatever else counts as one tenant's.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use softnet::time::Time;

use super::{Demand, Members, Pot, RateSpec, SharedRate};

/// Queues of a group that share fairly. Of more, the others count as one.
const MEMBERS: usize = 128;

/// Rates of a group: at least one of both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupSpec {
    /// Wire bytes, Ethernet header included.
    pub bytes: Option<RateSpec>,
    /// Wire packets.
    pub packets: Option<RateSpec>,
}

/// The instance of all those beyond. What an instance publishes is a hint; what passes is bounded
/// all the same.
const OTHERS: usize = MEMBERS - 1;

/// As much as there can be: not a limit. A quantum is that of any rate, for when there is one.
const ANY_BYTES: RateSpec = RateSpec {
    rate: 1_000_000_000_000,
    burst: 1 << 40,
    unit: 1518,
};
const ANY_PACKETS: RateSpec = RateSpec {
    unit: 1,
    ..ANY_BYTES
};

/// One rate in bytes and one in packets that several queues share.
#[derive(Debug)]
pub struct RateGroup {
    bytes: Arc<SharedRate>,
    packets: Arc<SharedRate>,
    /// Instances that have no limit.
    free: Mutex<Vec<usize>>,
}

impl RateGroup {
    /// Full buckets.
    pub fn new(spec: GroupSpec) -> Arc<RateGroup> {
        let members = Members::new(MEMBERS);
        Arc::new(RateGroup {
            bytes: SharedRate::new(spec.bytes.unwrap_or(ANY_BYTES), &members),
            packets: SharedRate::new(spec.packets.unwrap_or(ANY_PACKETS), &members),
            free: Mutex::new((0..OTHERS).rev().collect()),
        })
    }

    /// Other rates, for all queues at once; see [`SharedRate::set`].
    pub fn set(&self, spec: GroupSpec, now: Time) {
        self.bytes.set(spec.bytes.unwrap_or(ANY_BYTES), now);
        self.packets.set(spec.packets.unwrap_or(ANY_PACKETS), now);
    }

    /// The limit for one queue more. For the control path.
    pub fn join(self: &Arc<Self>) -> Limit {
        let instance = self.free().pop().unwrap_or(OTHERS);
        Limit {
            bytes: self.bytes.pot(instance),
            packets: self.packets.pot(instance),
            group: self.clone(),
        }
    }

    fn free(&self) -> MutexGuard<'_, Vec<usize>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Part of a group's rates that one queue has. It pays for what it has sent; see [`Pot::charge`].
#[derive(Debug)]
pub struct Limit {
    pub(super) bytes: Pot,
    packets: Pot,
    group: Arc<RateGroup>,
}

impl Limit {
    /// Wire packets that may be sent now, at most, before it is [charged](Limit::charge). `flows`
    /// are those in the backlog.
    ///
    /// # Errors
    /// When to ask again.
    #[inline]
    pub fn allowed(&mut self, flows: impl FnOnce() -> u16, now: Time) -> Result<u64, Time> {
        if !(self.bytes.covers(0, now) && self.packets.covers(0, now)) {
            let demand = Demand::flows(flows());
            let (bytes, packets) = (
                self.bytes.ready(demand, now),
                self.packets.ready(demand, now),
            );
            if let Some(time) = bytes.err().max(packets.err()) {
                return Err(time);
            }
        }
        let unit = self.bytes.unit().max(1);
        let bytes = self.bytes.credit().unsigned_abs() / unit;
        let packets = self.packets.credit().unsigned_abs();
        Ok(bytes.min(packets).max(1))
    }

    /// Pays for what was sent.
    #[inline]
    pub fn charge(&mut self, bytes: u64, packets: u64, flows: impl FnOnce() -> u16, now: Time) {
        let covered = self.bytes.covers(bytes, now) && self.packets.covers(packets, now);
        let demand = Demand::flows(if covered { 1 } else { flows() });
        self.bytes.charge(bytes, demand, now);
        self.packets.charge(packets, demand, now);
    }

    /// True if there is credit for all of this, without a look at what is shared.
    #[inline]
    pub fn covers(&self, bytes: u64, packets: u64, now: Time) -> bool {
        self.bytes.covers(bytes, now) && self.packets.covers(packets, now)
    }

    /// The queue has run, and will again at this time.
    #[inline]
    pub fn announce(&self, next: Time) {
        self.bytes.members().announce(self.bytes.instance(), next);
    }

    /// The queue has no backlog.
    #[inline]
    pub fn leave(&mut self) {
        self.bytes.leave();
        self.packets.leave();
    }
}

impl Drop for Limit {
    fn drop(&mut self) {
        self.leave();
        if self.bytes.instance() != OTHERS {
            self.group.free().push(self.bytes.instance());
        }
    }
}
