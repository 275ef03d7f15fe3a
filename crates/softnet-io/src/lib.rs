//! Drivers: how packets get into Softnet and out of it.
//!
//! A driver implements [`RxQueue`](softnet_engine::rx::RxQueue) and
//! [`TxRing`](softnet::tx::TxRing) for its queues; [`PortRx`] and [`PortTx`] are enums of them, so
//! that a worker dispatches without indirect calls. Beside them is what a driver needs from the
//! system: network namespaces ([`Netns`]), interfaces ([`Links`]), a place to sleep ([`Poller`]),
//! and who is at the other end of a socket ([`PeerCredentials`]).
//!
//! A port that is a TAP device, in an engine (needs root or a user namespace):
//!
//! ```no_run
//! use softnet::mem::{Pool, PoolConfig};
//! use softnet::time::Clock;
//! use softnet_engine::{Engine, PortSpec};
//! use softnet_io::{Buffers, DeviceSpec, Poller, PortDevices};
//!
//! let pool = Pool::new(PoolConfig { buffers: 65_536, buffer_size: 2048 })?;
//! let devices = PortDevices { buffers: Buffers { small: pool.clone(), large: None } };
//! let engine = Engine::start(vec![Poller::new()?], pool, Clock::monotonic(), devices)?;
//! let mut port = PortSpec::new("tap0");
//! port.options.device = DeviceSpec::Tap {
//!     interface: "tap0".into(),
//!     netns: None,
//!     addresses: vec!["10.9.0.1/24".parse()?],
//! };
//! engine.add_port(port)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! This crate knows nothing of switching and shaping.

#![deny(unsafe_code)]

mod confine;
mod devices;
mod link;
mod listener;
mod memory;
pub mod middleware;
mod netns;
mod null;
mod peer;
mod poller;
mod port;
pub mod tap;
mod userns;
pub mod vhost_user;

pub use confine::{ConfineError, confine};
pub use devices::{DeviceError, DeviceSpec, PortDevices};
pub use link::{BadAddress, InterfaceAddress, LinkError, Links};
pub use listener::{Descriptors, Listen, ListenError, Listener, group_id};
pub use memory::SharedMemory;
pub use netns::{Netns, NetnsError};
pub use null::{Null, NullRx, NullTx};
pub use peer::PeerCredentials;
pub use poller::Poller;
pub use port::{PortRx, PortTx};
pub use tap::{Buffers, Tap, TapConfig, TapLink, TapRx, TapTx};
pub use userns::{UsernsError, become_root_in_userns};
pub use vhost_user::{VhostUser, VhostUserRx, VhostUserTx};
