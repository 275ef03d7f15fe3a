//! From `transmit` to the driver: choose a queue, push on its adoption list, run its discipline, hand batches to the driver.
//!
//! No sender waits for another: a sender either runs the queue (for a bounded number of packets) or leaves its packets to
//! whoever does. What a bounded run leaves is handed to the queue's worker.

mod byte_limit;
mod control;
mod device;
mod down;
mod dql;
mod egress;
mod enter;
mod notifier;
mod policy;
mod queue;
mod queue_map;
mod quota;
mod recursion;
mod requeue;
mod ring;
mod room;
mod runner;
mod select;
mod standalone;
mod transmit;
mod watch;

pub use byte_limit::{ByteLimited, Completes};
pub use device::{Device, DeviceConfig, DeviceStats, Distributions, Ingress, Qdiscs};
pub use down::WATCHDOG_TIMEO;
pub use dql::{Dql, DqlBounds, HOLD};
pub use egress::{ActionStats, Egress};
pub use notifier::{Event, Notifier, Wake};
pub use policy::{QDISC_MAX_BURST, RUN_QUOTA, ServedBy, TxPolicy};
pub use queue::{QueueStats, TxQueue, XmitResult};
pub use queue_map::{MAX_CLASSES, MAX_CPUS, MAX_QUEUES, QueueMap, QueueMapError, TcQueues};
pub use recursion::XMIT_RECURSION_LIMIT;
pub use requeue::REQUEUE_LIMIT;
pub use ring::{Sent, TxRing, Xmit};
pub use select::{select_queue, sender_cpu, set_sender_cpu};
pub use standalone::{Standalone, StandaloneError};

pub use crate::offload::Features;

#[cfg(all(test, not(miri)))]
mod select_tests;
