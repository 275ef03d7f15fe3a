//! From `transmit` to the driver: choose a queue, push on its adoption list, run its discipline, hand batches to the driver.
//!
//! No sender waits for another: a sender either runs the queue (for a bounded number of packets) or leaves its packets to
//! whoever does. What a bounded run leaves is handed to the queue's worker.

mod device;
mod queue;
mod ring;
mod room;
mod select;
mod standalone;
mod validate;

pub use device::{Device, DeviceConfig, DeviceStats};
pub use queue::{QDISC_MAX_BURST, QueueStats, RUN_QUOTA, TxQueue, XmitResult};
pub use ring::{Features, Sent, TxRing, Xmit};
pub use standalone::{Standalone, StandaloneError};
pub use validate::validate;

#[cfg(test)]
mod standalone_tests;
#[cfg(test)]
mod tests;
