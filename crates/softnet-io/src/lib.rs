//! Drivers: how packets get into Softnet and out of it.
//!
//! A driver implements [`RxQueue`](softnet_engine::rx::RxQueue) and
//! [`TxRing`](softnet::tx::TxRing) for its queues, and [`Driver`] for what a
//! configuration says of a device; [`PortRx`], [`PortTx`] and [`DeviceSpec`] are enums of them, so
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
//! use softnet_io::{Buffers, Poller, PortDevices, TapSpec};
//!
//! let pool = Pool::new(PoolConfig { buffers: 65_536, buffer_size: 2048 })?;
//! let devices = PortDevices::new(Buffers { small: pool.clone(), large: None });
//! let engine = Engine::start(vec![Poller::new()?], pool, Clock::monotonic(), devices)?;
//! let mut port = PortSpec::new("tap0");
//! port.options.device = TapSpec {
//!     addresses: vec!["10.9.0.1/24".parse()?],
//!     ..TapSpec::new("tap0")
//! }
//! .into();
//! engine.add_port(port)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! This crate knows nothing of switching and shaping.

#![deny(unsafe_code)]

mod accounts;
pub mod af_packet;
pub mod af_xdp;
mod buffers;
mod confine;
pub mod dgram;
mod driver;
mod drivers;
mod fresh;
mod hand_off;
mod inherited;
mod interface;
mod interface_address;
mod link;
mod link_events;
mod listener;
pub mod middleware;
mod netns;
mod null;
pub mod pcap;
mod peer;
mod poller;
pub mod rights;
mod route;
mod scheduling;
pub mod stream;
mod supervise;
pub mod tap;
mod userns;
pub mod vhost_user;
mod virtual_link;

pub use accounts::user_id;
pub use af_packet::{AfPacket, AfPacketError, AfPacketRx, AfPacketSpec, AfPacketTx};
pub use af_xdp::{AfXdp, AfXdpError, AfXdpRx, AfXdpSpec, AfXdpTx};
pub use buffers::Buffers;
pub use confine::{ConfineError, confine};
pub use dgram::{Dgram, DgramSpec};
pub use driver::{ALL_MTUS, Driver, ETHERNET_MTUS};
pub use drivers::{DeviceError, DeviceSpec, PortDevices, PortRx, PortTx};
pub use hand_off::{Continued, HandOff, OpenDevice};
pub use inherited::inherited_files;
pub use interface::InterfaceError;
pub use interface_address::{BadAddress, InterfaceAddress};
pub use link::{LinkError, Links};
pub use listener::{
    Descriptors, Listen, ListenError, Listener, MetricsPlace, SocketKind, group_id,
};
pub use netns::{Netns, NetnsError, NetnsSpec};
pub use null::{Null, NullError, NullRx, NullSpec, NullTx};
pub use pcap::{Pcap, PcapSpec};
pub use peer::PeerCredentials;
pub use poller::Poller;
pub use route::{BadRoute, InterfaceRoute};
pub use scheduling::{Allowed, Scheduling};
pub use stream::{Stream, StreamSpec, Uplink};
pub use supervise::supervise;
pub use tap::{Tap, TapConfig, TapFile, TapLink, TapRx, TapSource, TapSpec, TapTx};
pub use userns::{UsernsError, become_root_in_userns};
pub use vhost_user::{VhostUser, VhostUserRx, VhostUserTx};
pub use virtual_link::{GivingTx, LOOPBACK_MTU, NoRx, VirtualSpec};
