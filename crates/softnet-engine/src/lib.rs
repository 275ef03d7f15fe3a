//! Workers that poll receive queues and serve transmit queues, bridges, and the control path that
//! changes ports and policies while packets flow: see [`Engine`].

#![forbid(unsafe_code)]

mod engine;
pub mod forward;
pub mod rx;

pub use engine::{
    Conservation, Engine, EngineConfig, EngineError, EngineStats, MirredSpec, PortId, PortSetup,
    PortStats,
};

/// A device with any of the qdiscs that [`softnet_tc`] knows.
pub type Device<R> = softnet::tx::Device<R, softnet_tc::AnyQdisc>;

#[cfg(test)]
mod testing;
