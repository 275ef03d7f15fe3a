//! Shares of a device's queues among traffic classes, in the words of
//! `tc qdisc … mqprio` (tc-mqprio(8)).

/// Queues of a device at most (`MAX_TAP_QUEUES`).
pub const MAX_QUEUES: usize = 256;
/// Traffic classes at most (`TC_MAX_QUEUE`).
pub const MAX_CLASSES: usize = 16;

/// The queues of a traffic class: `count@offset`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcQueues {
    /// Number of queues.
    pub count: u16,
    /// The first.
    pub offset: u16,
}

/// Traffic classes of a device's queues. The default: no classes, any packet may take any queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueMap {
    /// Traffic class of each priority (its low 4 bits).
    pub prio_tc_map: [u8; 16],
    /// The queues of each traffic class; none: there are no classes.
    pub classes: Vec<TcQueues>,
}

/// The maps of a device. They are kept apart, so that either changes, and goes, without the other.
#[derive(Debug, Default)]
pub(super) struct Maps {
    /// The device's own.
    pub(super) own: QueueMap,
    /// The map of `mqprio`, in force instead of the device's own, as long as there is one
    /// (INV-MQ-3).
    pub(super) mqprio: Option<QueueMap>,
}

impl Maps {
    /// Maps that queues are chosen by.
    pub(super) fn in_force(&self) -> &QueueMap {
        self.mqprio.as_ref().unwrap_or(&self.own)
    }
}
