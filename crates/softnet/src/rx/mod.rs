//! Receiving: workers that poll receive queues within a budget, run the transmit queues handed to them, and sleep when idle.

mod doorbell;
mod napi;
mod sleep;
mod source;
mod worker;

pub use doorbell::Doorbell;
pub use napi::{BUDGET, Napi, WEIGHT};
pub use sleep::{Sleep, Wake};
pub use source::{CountDrop, Polled, RxQueue};
pub(crate) use worker::{COMMANDS, Shared as WorkerShared};
pub use worker::{Command, Peers, Port, Worker, WorkerStats};
