//! From `transmit` to the driver: choose a queue, become its owner or push on its adoption list,
//! run its qdisc, hand batches to the driver.
//!
//! A sender either serves the queue, as its owner, for a bounded number of packets, or leaves its
//! packets to the owner. A single packet waits for no other thread; a list of 8 and more looks for
//! the ownership for at most 400 ns for each of its packets before it is left (INV-TX-19). What a
//! bounded owner leaves is handed to the queue's worker.
//!
//! The files from top to bottom; each calls those below it only: `device`, `transmit` (which
//! queue), `queue` (owner or not, the owner's loop), `state` (the owner's work), `rings`, `ring`
//! (the driver). Beside them `control` and `down` (the control path).

mod adopted;
mod budget;
mod capacity;
mod configure;
mod control;
mod counts;
mod device;
mod device_stats;
mod down;
mod egress;
mod notifier;
mod patience;
mod policy;
mod queue;
mod queue_map;
mod quota;
mod recursion;
mod ring;
mod rings;
mod runner;
mod select;
mod sender;
mod state;
mod status;
mod transmit;
mod wake_file;
mod waker;
mod xmit_result;

pub use capacity::CapacityWaiter;
pub use control::ControlError;
pub use device::{Device, DeviceConfig, Qdiscs};
pub use device_stats::{DeviceStats, Distributions};
pub use policy::{ServedBy, TxPolicy};
pub use queue::TxQueue;
pub use queue_map::{QueueMap, TcQueues};
pub use ring::{Interest, RingFile, Sent, TxRing, Xmit};
pub use runner::Runner;
pub use sender::{Sender, SenderBuilder, SenderError};
pub use status::QueueStats;
pub use wake_file::WakeFile;
pub use waker::RingWaker;
pub use xmit_result::XmitResult;

// For an engine, its actions and workers, and limits that are told where they matter.
#[doc(hidden)]
pub use self::{
    device::Ingress,
    down::WATCHDOG_TIMEO,
    egress::{Egress, Outlet},
    notifier::{Event, Notifier, Wake},
    policy::{QDISC_MAX_BURST, RUN_QUOTA},
    queue_map::{MAX_CLASSES, MAX_QUEUES},
    recursion::XMIT_RECURSION_LIMIT,
    rings::REQUEUE_LIMIT,
    select::{select_queue, set_worker},
};

pub use crate::offload::Features;

#[cfg(test)]
mod queue_tests;
#[cfg(all(test, not(any(loom, miri))))]
mod select_tests;
