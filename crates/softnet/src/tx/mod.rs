//! From `transmit` to the driver: choose a queue, push on its adoption list, run its discipline, hand batches to the driver.
//!
//! No sender waits for another: a sender either runs the queue (for a bounded number of packets) or leaves its packets to
//! whoever does. What a bounded run leaves is handed to the queue's worker.

mod device;
mod policy;
mod queue;
mod ring;
mod room;
mod runner;
mod select;
mod standalone;
mod validate;
mod waiting;

pub use device::{Device, DeviceConfig, DeviceStats};
pub use policy::{QDISC_MAX_BURST, RUN_QUOTA, ServedBy, TimeLimit, TxPolicy};
pub use queue::{QueueStats, TxQueue, XmitResult};
pub use ring::{Features, Sent, TxRing, Xmit};
pub use standalone::{Standalone, StandaloneError};
pub use validate::validate;

#[cfg(test)]
mod standalone_tests;
#[cfg(test)]
mod tests;
