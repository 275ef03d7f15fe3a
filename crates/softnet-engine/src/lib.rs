//! Workers that poll receive queues and serve transmit queues, bridges, and the control path that
//! changes ports and policies while packets flow: see [`Engine`].
//!
//! ```
//! use std::time::Duration;
//!
//! use softnet::mem::{Pool, PoolConfig};
//! use softnet::time::Clock;
//! use softnet::tx::TxPolicy;
//! use softnet_engine::{Engine, PortSetup};
//! use softnet_io::{Null, Poller};
//! use softnet_tc::{QdiscSpec, TbfSpec};
//!
//! // One worker, which sleeps in a `Poller`, and two ports on a bridge.
//! let pool = Pool::new(PoolConfig { buffers: 1024, buffer_size: 2048 })?;
//! let engine = Engine::start(vec![Poller::new()?], pool, Clock::monotonic())?;
//! let mut ports = Vec::new();
//! for name in ["a", "b"] {
//!     let Null { rx, tx, features } = Null::open(1, 1500)?;
//!     let setup = PortSetup {
//!         name: name.into(),
//!         rx,
//!         tx,
//!         features,
//!         qdisc: QdiscSpec::default(),
//!         policy: TxPolicy::default(),
//!     };
//!     ports.push(engine.add_port(setup)?);
//! }
//! engine.add_bridge("br0", &ports)?;
//!
//! // While packets flow:
//! let tbf = TbfSpec { rate: 12_500_000, burst: 32_768, limit: 100_000, ..TbfSpec::default() };
//! engine.set_qdisc(ports[1], &QdiscSpec::Tbf(tbf))?;
//!
//! let stats = engine.stop(Duration::from_secs(1));
//! assert!(stats.conservation().holds(), "received = sent + dropped + queued");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Codes in comments such as `INV-RX-1` are defined in `docs/invariants.md`.

#![forbid(unsafe_code)]

pub mod control;
mod engine;
pub mod forward;
mod link;
pub mod rx;

pub use engine::{
    BridgeId, BridgeInfo, BridgeOptions, BridgePort, Conservation, Engine, EngineConfig,
    EngineError, EngineStats, Exchange, FdbEntry, FdbSpec, MirredSpec, PortEvent, PortId,
    PortSetup, PortStats, RateLimits, VlanOwner,
};
pub use link::{DeviceDrops, Link, LinkState};

/// A device with any of the qdiscs that [`softnet_tc`] knows.
pub type Device<R> = softnet::tx::Device<R, softnet_tc::AnyQdisc>;

#[cfg(any(test, feature = "testing"))]
pub mod testing;
