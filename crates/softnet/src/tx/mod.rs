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
mod validate;
mod watch;
mod way_out;

pub use byte_limit::{ByteLimited, Completes};
pub(crate) use device::Ingress;
pub use device::{Device, DeviceConfig, DeviceStats, Distributions};
pub use down::WATCHDOG_TIMEO;
pub use dql::{Dql, DqlBounds, HOLD};
pub use egress::{ActionStats, Egress};
pub use policy::{QDISC_MAX_BURST, RUN_QUOTA, ServedBy, TxPolicy};
pub use queue::{QueueStats, TxQueue, XmitResult};
pub use queue_map::{MAX_CLASSES, MAX_CPUS, MAX_QUEUES, QueueMap, QueueMapError, TcQueues};
pub use recursion::XMIT_RECURSION_LIMIT;
pub use requeue::REQUEUE_LIMIT;
pub use ring::{Features, Sent, TxRing, Xmit};
pub use select::{sender_cpu, set_sender_cpu};
pub use standalone::{Standalone, StandaloneError};
pub use validate::validate;

#[cfg(test)]
mod bound_tests;
#[cfg(all(test, not(miri)))]
mod bug_tests;
#[cfg(all(test, not(miri)))]
mod driver_tests;
#[cfg(all(test, not(miri)))]
mod large_frame_tests;
#[cfg(all(test, not(miri)))]
mod mq_tests;
#[cfg(all(test, not(miri)))]
mod quota_tests;
#[cfg(all(test, not(miri)))]
mod requeue_tests;
#[cfg(all(test, not(miri)))]
mod select_tests;
#[cfg(test)]
mod standalone_tests;
#[cfg(all(test, not(loom)))]
mod stress_tests;
#[cfg(test)]
mod testbench;
#[cfg(test)]
mod tests;
#[cfg(all(test, not(miri)))]
mod way_out_tests;
