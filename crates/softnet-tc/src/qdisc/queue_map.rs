//! The rules of `mqprio` in software mode for a map of a device's queues. (A device keeps to its
//! queues by any map.)

use softnet::tx::{MAX_CLASSES, QueueMap};

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

/// Checks a map for a device with `queues` queues: classes have queues, which exist, and share
/// none.
///
/// # Errors
/// [`QueueMapError`] names what is wrong.
pub fn check_queue_map(map: &QueueMap, queues: usize) -> Result<(), QueueMapError> {
    let classes = map.classes.len();
    if classes > MAX_CLASSES {
        return Err(QueueMapError::Classes(classes));
    }
    let limit = classes.max(1);
    for (priority, &class) in map.prio_tc_map.iter().enumerate() {
        if usize::from(class) >= limit {
            return Err(QueueMapError::Map {
                priority,
                class,
                classes,
            });
        }
    }
    let ranges = map.classes.iter().map(|c| {
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

#[cfg(test)]
mod tests {
    use softnet::tx::TcQueues;

    use super::*;

    fn classes(ranges: &[(u16, u16)], prio_tc_map: [u8; 16]) -> QueueMap {
        let class = |&(count, offset): &(u16, u16)| TcQueues { count, offset };
        QueueMap {
            prio_tc_map,
            classes: ranges.iter().map(class).collect(),
        }
    }

    fn prio(map: &[u8]) -> [u8; 16] {
        std::array::from_fn(|i| map.get(i).copied().unwrap_or(0))
    }

    #[test]
    fn maps_that_do_not_fit_are_refused() {
        use QueueMapError as E;
        let check = |map: &QueueMap| check_queue_map(map, 4).unwrap_err();
        assert_eq!(check(&classes(&[(1, 0); 17], [0; 16])), E::Classes(17));
        let map = E::Map {
            priority: 2,
            class: 2,
            classes: 2,
        };
        assert_eq!(check(&classes(&[(1, 0), (1, 1)], prio(&[0, 1, 2]))), map);
        let none = E::Map {
            priority: 0,
            class: 1,
            classes: 0,
        };
        assert_eq!(check(&classes(&[], prio(&[1]))), none);
        assert_eq!(check(&classes(&[(1, 0), (0, 1)], [0; 16])), E::Empty(1));
        let beyond = E::Beyond {
            class: 0,
            last: 4,
            queues: 4,
        };
        assert_eq!(check(&classes(&[(3, 2)], [0; 16])), beyond);
        assert_eq!(
            check(&classes(&[(2, 0), (1, 3), (2, 1)], [0; 16])),
            E::Overlap(0, 2)
        );
        let fits = classes(&[(2, 0), (2, 2)], prio(&[0, 1]));
        assert_eq!(check_queue_map(&fits, 4), Ok(()));
    }
}
