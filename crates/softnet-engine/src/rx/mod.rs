//! Receiving: workers that poll receive queues within a budget, steer packets to each other, serve
//! the transmit queues that bounded runs leave, and sleep when idle.

mod backlog;
mod command;
mod flow_limit;
mod flow_table;
mod halt_poll;
mod hand_off;
mod napi;
mod sleep;
mod source;
mod stats;
mod steer;
mod worker;

pub use backlog::{BACKLOG_LIMIT, Backlog, BacklogOwner, MAX_BACKLOG, Mark};
pub(crate) use command::{COMMANDS, Command, Event, TxPort, View};
pub use flow_table::FlowTable;
pub use halt_poll::HaltPoll;
pub use napi::{BUDGET, WEIGHT};
pub(crate) use napi::{Napi, NapiPlace};
pub use sleep::Sleep;
pub use source::{NextPoll, Polled, Receive, RxQueue};
pub(crate) use stats::Shared as WorkerShared;
pub use stats::WorkerStats;
#[cfg(all(test, not(any(loom, miri))))]
pub(crate) use steer::ENTRIES;
pub use steer::{Rfs, SteeringSpec};
pub(crate) use worker::{Parts as WorkerParts, Worker};
