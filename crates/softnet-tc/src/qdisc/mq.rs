//! `mq` and `mqprio`: a class for each transmit queue, and no queue of their own (tc-mq(8),
//! tc-mqprio(8)). `mqprio` also has traffic classes, each above queues of its own.

use softnet::tx::{QueueMap, TcQueues};

use super::kind::QdiscSpec;
use super::option::{Form, QdiscOption, Unset, options};
use crate::handle::Handle;

/// The first minor number of a traffic class (`TC_H_MIN_PRIORITY`).
pub(crate) const FIRST_TRAFFIC_CLASS: u16 = 0xffe0;

/// The options of `mqprio`.
pub(super) const OPTIONS: &[QdiscOption] = options! { QdiscSpec::Mqprio(_) =>
    /// number of traffic classes, 1 to 16
    "num_tc": Form::Own; unset = Unset::Required("", "2"); wrong = "17",
    /// list with the traffic class of each priority 0 to 15; those left out belong to class 0
    "map": Form::Own; unset = Unset::Words("`[]`"); wrong = "[9]",
    /// list with the queues of each class, `"COUNT@OFFSET"`
    "queues": Form::Own; unset = Unset::Required("", r#"["1@0", "1@1"]"#); wrong = "[\"x\"]",
};

impl QdiscSpec {
    /// True if its classes are the device's transmit queues.
    pub fn is_per_queue(&self) -> bool {
        matches!(
            self,
            QdiscSpec::Mq | QdiscSpec::Mqprio(_) | QdiscSpec::CakeMq(_)
        )
    }

    /// Qdisc of each transmit queue, where that cannot be another one.
    pub(crate) fn queue_child(&self) -> Option<QdiscSpec> {
        match self {
            QdiscSpec::CakeMq(spec) => Some(QdiscSpec::Cake(spec.clone())),
            _ => None,
        }
    }

    /// Queues of each priority, where they differ.
    pub fn queue_map(&self) -> Option<&QueueMap> {
        match self {
            QdiscSpec::Mqprio(map) => Some(map),
            _ => None,
        }
    }

    /// Queues of a class, if that is a traffic class.
    pub(crate) fn traffic_class(&self, minor: u16) -> Option<&TcQueues> {
        let tc = minor.checked_sub(FIRST_TRAFFIC_CLASS)?;
        self.queue_map()?.classes.get(usize::from(tc))
    }

    /// The class above one of a qdisc whose classes are transmit queues: a queue's traffic class,
    /// if it is of one, else the root.
    pub fn class_above(&self, class: Handle) -> Handle {
        let Some(map) = self.queue_map() else {
            return Handle::ROOT;
        };
        if class.minor() >= FIRST_TRAFFIC_CLASS {
            return Handle::ROOT;
        }
        let queue = class.minor().wrapping_sub(1);
        let has = |of: &TcQueues| (of.offset..of.offset.saturating_add(of.count)).contains(&queue);
        match map.classes.iter().position(has) {
            Some(tc) => class.class(FIRST_TRAFFIC_CLASS + tc as u16),
            None => Handle::NONE,
        }
    }
}
