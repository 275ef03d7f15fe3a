//! Workers that poll receive queues and serve transmit queues, bridges, and the control path that
//! changes ports and policies while packets flow: see [`Engine`].
//!
//! ```
//! use std::time::Duration;
//!
//! use softnet::mem::{Pool, PoolConfig};
//! use softnet::time::Clock;
//! use softnet_engine::{Engine, Opened, OwnQueues, PortSpec, Settings};
//! use softnet_io::{Null, Poller};
//! use softnet_tc::{QdiscSpec, TbfSpec};
//!
//! // One worker, which sleeps in a `Poller`, and two ports on a bridge. The program opens their
//! // queues itself.
//! let pool = Pool::new(PoolConfig { buffers: 1024, buffer_size: 2048 })?;
//! let sleepers = vec![Poller::new()?];
//! let engine = Engine::start(sleepers, pool, Clock::monotonic(), OwnQueues::default())?;
//! engine.add_bridge(Settings::new("br0"))?;
//! let mut ports = Vec::new();
//! for name in ["a", "b"] {
//!     let Null { rx, tx, features } = Null::open(1, 1500)?;
//!     let port = PortSpec { master: Some("br0".into()), ..PortSpec::new(name) };
//!     ports.push(engine.add_port_with(port, Opened { rx, tx, features })?);
//! }
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

pub mod capture;
mod engine;
pub mod forward;
mod link;
pub mod rx;

pub use engine::{
    ALIAS_MAX, ActionSpec, ApplyError, BRIDGE_MTUS, BridgeInfo, BridgeOptions, BridgePort,
    BridgeSpec, Change, Conservation, DeviceOf, Devices, Engine, EngineConfig, EngineError,
    EngineStats, FDB_SIZES, FdbEntry, FdbSpec, LinkInfo, LinkKind, Links, MemberSpec, Missing,
    NAME_MAX, NoDriver, OpenPort, Opened, OwnQueues, PortEvent, PortOptions, PortSpec, PortStats,
    Settings, Spec,
};
pub use engine::{MdbEntry, MdbRouter, MdbSpec};
pub use forward::{ActionStats, HookCounts, Virtual, VlanTag};
pub use link::{DeviceDrops, Link, LinkState};

/// A device with any of the qdiscs that [`softnet_tc`] knows.
pub type Device<R> = softnet::tx::Device<R, softnet_tc::AnyQdisc>;

#[cfg(any(test, feature = "testing"))]
pub mod testing;
