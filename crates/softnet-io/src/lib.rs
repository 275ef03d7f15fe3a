//! Drivers: how packets get into Softnet and out of it.
//!
//! A driver implements [`RxQueue`](softnet_engine::rx::RxQueue) and [`TxRing`](softnet::tx::TxRing) for its queues; [`PortRx`] and
//! [`PortTx`] gather the drivers, so that a worker dispatches without indirect calls. Beside them is what a driver needs from the
//! system: network namespaces ([`Netns`]), interfaces ([`Links`]) and a place to sleep ([`Poller`]).
//!
//! This crate depends on `softnet`, never the other way round. It knows nothing of switching, shaping or control.

#![deny(unsafe_code)]

mod link;
mod memory;
mod netns;
mod null;
mod poller;
mod port;
pub mod tap;
mod userns;

pub use link::{BadAddress, InterfaceAddress, LinkError, Links};
pub use memory::SharedMemory;
pub use netns::{Netns, NetnsError};
pub use null::{Null, NullRx, NullTx};
pub use poller::Poller;
pub use port::{PortRx, PortTx};
pub use tap::{Buffers, Tap, TapConfig, TapLink, TapRx, TapTx};
pub use userns::{UsernsError, become_root_in_userns};
