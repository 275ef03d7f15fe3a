//! `mq` and `mqprio`: a discipline of its own at each transmit queue of a device (tc-mqprio(8); the kernel's `sch_mq`, `sch_mqprio`).
//!
//! Neither has a queue: a sender goes to the discipline of the queue that its packets take, so runs of different queues share nothing. `mqprio` also says
//! which queues a packet's priority may take (INV-MQ-2); choosing one is [`tx`](softnet::tx)'s business, the map is only carried here. Both stand at the root
//! only, and a queue's number plus one is its class. Their numbers are the sums of their children's (INV-MQ-1):
//! [`DeviceStats::qdisc`](softnet::tx::DeviceStats::qdisc).

use super::{QdiscSpec, SpecError};
use softnet::tx::QueueMap;

/// What each transmit queue has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MqSpec {
    /// Of queue 0, 1, and so on.
    pub children: Vec<QdiscSpec>,
    /// Of the queues beyond.
    pub others: Box<QdiscSpec>,
}

impl Default for MqSpec {
    /// The default discipline at each queue.
    fn default() -> Self {
        MqSpec {
            children: Vec::new(),
            others: Box::default(),
        }
    }
}

impl MqSpec {
    /// The child at transmit queue `queue`.
    pub fn child(&self, queue: usize) -> &QdiscSpec {
        self.children.get(queue).unwrap_or(&self.others)
    }

    /// Checks all children.
    ///
    /// # Errors
    /// As [`QdiscSpec::check`]; [`SpecError::Child`] for a kind that stands at a root only (BUG-TX-26).
    pub(super) fn check(&self) -> Result<(), SpecError> {
        self.children
            .iter()
            .chain([&*self.others])
            .try_for_each(|child| {
                if child.is_root_only() {
                    return Err(SpecError::Child(child.kind()));
                }
                child.check()
            })
    }
}

/// What each transmit queue has, and which priorities take which queues.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MqprioSpec {
    /// The children.
    pub mq: MqSpec,
    /// `num_tc`, `map` and `queues`. It stays with the device until the discipline is replaced; then the device's queues have no map (INV-MQ-3).
    pub map: QueueMap,
}
