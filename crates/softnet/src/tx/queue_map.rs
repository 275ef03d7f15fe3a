//! How a device's queues are shared out: traffic classes, and which threads and receive queues
//! use which queues. In the words of `tc qdisc … mqprio` (tc-mqprio(8)) and of
//! `/sys/class/net/DEV/queues/tx-N/` (the kernel's Documentation/networking/scaling.rst).

/// Queues of a device at most (`MAX_TAP_QUEUES`).
pub const MAX_QUEUES: usize = 256;
/// Numbers that a CPU map may name: below this.
pub const MAX_CPUS: usize = 1024;
/// Traffic classes at most (`TC_MAX_QUEUE`).
pub const MAX_CLASSES: usize = 16;

/// The queues of a traffic class: `count@offset`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcQueues {
    /// How many.
    pub count: u16,
    /// The first.
    pub offset: u16,
}

/// How a device's queues are shared out. The default: no classes, no maps; queues are chosen by
/// recorded receive queue or flow hash.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueMap {
    /// Traffic class of each priority (its low 4 bits).
    pub prio_tc_map: [u8; 16],
    /// The queues of each traffic class; none: there are no classes.
    pub classes: Vec<TcQueues>,
    /// For each queue, the threads that use it (`xps_cpus`): workers by number, other threads by
    /// what they [say](super::set_sender_cpu). Empty: no map.
    pub xps_cpus: Vec<Vec<usize>>,
    /// For each queue, the receive queues whose packets use it (`xps_rxqs`). Empty: no map.
    pub xps_rxqs: Vec<Vec<usize>>,
}

/// A map that does not fit the device.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueueMapError {
    /// More than 16 classes.
    #[error("num_tc is {0}; use at most {MAX_CLASSES}")]
    Classes(usize),
    /// A priority of a class that is not there.
    #[error("map sends priority {priority} to class {class}; there are {classes} classes")]
    Map {
        /// The priority.
        priority: usize,
        /// Its class.
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
        /// Its last queue.
        last: usize,
        /// Queues there are.
        queues: usize,
    },
    /// Queues of two classes.
    #[error("classes {0} and {1} share queues; their ranges must not overlap")]
    Overlap(usize, usize),
    /// A map for more queues than there are.
    #[error("{name} has {rows} entries, one for each queue; the device has {queues} queues")]
    Rows {
        /// `xps_cpus` or `xps_rxqs`.
        name: &'static str,
        /// Entries.
        rows: usize,
        /// Queues there are.
        queues: usize,
    },
    /// A number that a map cannot name.
    #[error("{name} names {number}; use 0 to {most}")]
    Number {
        /// `xps_cpus` or `xps_rxqs`.
        name: &'static str,
        /// The number.
        number: usize,
        /// The largest.
        most: usize,
    },
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
        check_rows("xps_cpus", &self.xps_cpus, queues, MAX_CPUS)?;
        check_rows("xps_rxqs", &self.xps_rxqs, queues, MAX_QUEUES)
    }
}

fn check_rows(
    name: &'static str,
    rows: &[Vec<usize>],
    queues: usize,
    limit: usize,
) -> Result<(), QueueMapError> {
    if rows.len() > queues.min(MAX_QUEUES) {
        return Err(QueueMapError::Rows {
            name,
            rows: rows.len(),
            queues,
        });
    }
    let beyond = |&&n: &&usize| n >= limit;
    match rows.iter().flatten().find(beyond) {
        Some(&number) => Err(QueueMapError::Number {
            name,
            number,
            most: limit - 1,
        }),
        None => Ok(()),
    }
}
