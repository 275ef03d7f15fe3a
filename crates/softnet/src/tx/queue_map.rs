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

/// A map that does not fit the device.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum QueueMapError {
    /// More than 16 classes.
    #[error("num_tc is {0}; use at most {MAX_CLASSES}")]
    Classes(usize),
    /// A priority of a class that is not there.
    #[error("map sends priority {priority} to class {class}; there are {classes} classes")]
    Map {
        /// The priority.
        priority: usize,
        /// The priority's class.
        class: u8,
        /// Classes there are.
        classes: usize,
    },
    /// A class without queues.
    #[error("class {0} has no queue; give it at least one")]
    Empty(usize),
    /// Queues that are not there.
    #[error("class {class} ends at queue {last}; the device has {queues} queues, from 0")]
    Beyond {
        /// The class.
        class: usize,
        /// The class's last queue.
        last: usize,
        /// Queues there are.
        queues: usize,
    },
    /// Queues of two classes.
    #[error("classes {0} and {1} share queues; their ranges must not overlap")]
    Overlap(usize, usize),
}

impl QueueMap {
    /// Checks the map for a device with `queues` queues, by the rules of mqprio in software mode:
    /// classes have queues, which exist, and share none.
    ///
    /// # Errors
    /// [`QueueMapError`] names what is wrong.
    pub fn check(&self, queues: usize) -> Result<(), QueueMapError> {
        let classes = self.classes.len();
        if classes > MAX_CLASSES {
            return Err(QueueMapError::Classes(classes));
        }
        let limit = classes.max(1);
        for (priority, &class) in self.prio_tc_map.iter().enumerate() {
            if usize::from(class) >= limit {
                return Err(QueueMapError::Map {
                    priority,
                    class,
                    classes,
                });
            }
        }
        let ranges = self.classes.iter().map(|c| {
            let first = usize::from(c.offset);
            first..first + usize::from(c.count)
        });
        for (class, range) in ranges.clone().enumerate() {
            if range.is_empty() {
                return Err(QueueMapError::Empty(class));
            }
            if range.end > queues {
                return Err(QueueMapError::Beyond {
                    class,
                    last: range.end - 1,
                    queues,
                });
            }
            let shares = |r: &std::ops::Range<usize>| r.start < range.end && range.start < r.end;
            if let Some(before) = ranges.clone().take(class).position(|r| shares(&r)) {
                return Err(QueueMapError::Overlap(before, class));
            }
        }
        Ok(())
    }
}
