//! Receiving: workers that poll receive queues within a budget, share packets out to each other, run the transmit queues handed to them, and sleep
//! when idle.

mod backlog;
mod flow_limit;
mod flow_table;
mod halt_poll;
mod handover;
mod napi;
mod sleep;
mod source;
mod stats;
mod steer;
mod worker;

pub use backlog::{BACKLOG_LIMIT, Backlog, BacklogOwner, MAX_BACKLOG, Mark};
pub use flow_table::FlowTable;
pub use halt_poll::HaltPoll;
pub use napi::{BUDGET, Napi, WEIGHT};
pub use sleep::Sleep;
pub use source::{CountDrop, DeviceCounters, DeviceDrops, Polled, RxQueue};
pub(crate) use stats::Shared as WorkerShared;
pub use stats::WorkerStats;
pub use steer::{Rfs, SteeringSpec};
pub(crate) use worker::{COMMANDS, Gone, Parts as WorkerParts, Worker};
pub use worker::{Command, Peers, Port};
