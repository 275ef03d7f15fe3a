//! Workers on threads, ports, bridges, and the control path that changes them while packets flow.
//!
//! The engine is generic over the drivers' types, so that no call on the packet path is indirect.
//! Control calls are carried out one at a time, block for some of the workers' rounds, and change
//! all or nothing; packets go on flowing meanwhile.

mod action_table;
mod actions;
mod apply;
mod bridges;
mod captures;
mod change;
mod devices;
mod error;
mod events;
pub(crate) mod exchange;
mod fdb;
mod hang;
mod hooks;
mod indev;
mod info;
mod life;
mod links;
mod losses;
mod mdb;
mod ports;
mod publish;
mod rate_groups;
mod receive;
mod ring_files;
mod spec;
mod state;
mod stats;
mod suspend;
mod trees;
mod vlans;

pub use apply::{ApplyError, Missing};
pub use change::{Change, PortEvent};
pub use devices::{DeviceOf, Devices, NoDriver, Opened, OwnQueues};
pub use error::EngineError;
pub use info::{BridgeInfo, BridgePort, FdbEntry, LinkInfo, LinkKind, Links};
pub use life::{Engine, EngineConfig};
pub use links::BRIDGE_MTUS;
pub use mdb::{MdbEntry, MdbRouter, MdbSpec};
pub use ports::OpenPort;
pub use spec::{
    ALIAS_MAX, ActionSpec, BridgeOptions, BridgeSpec, FDB_SIZES, FdbSpec, MemberSpec, NAME_MAX,
    PortOptions, PortSpec, Settings, Spec,
};
pub use stats::{Conservation, EngineStats, PortStats};

#[cfg(all(test, not(any(loom, miri))))]
mod apply_tests;
#[cfg(all(test, not(any(loom, miri))))]
mod bridge_tests;
#[cfg(all(test, not(any(loom, miri))))]
mod caller_tests;
#[cfg(all(test, not(any(loom, miri))))]
mod flood_tests;
#[cfg(all(test, not(any(loom, miri))))]
mod hook_tests;
#[cfg(all(test, not(any(loom, miri))))]
mod idle_tests;
#[cfg(all(test, not(any(loom, miri))))]
mod indev_tests;
#[cfg(all(test, not(any(loom, miri))))]
mod life_tests;
#[cfg(all(test, not(any(loom, miri))))]
mod link_tests;
#[cfg(all(test, not(any(loom, miri))))]
mod mcast_tests;
#[cfg(all(test, not(any(loom, miri))))]
mod pools_tests;
#[cfg(all(test, not(any(loom, miri))))]
mod publish_tests;
#[cfg(all(test, not(any(loom, miri))))]
mod rate_group_tests;
#[cfg(all(test, not(any(loom, miri))))]
mod replace_tests;
#[cfg(all(test, not(any(loom, miri))))]
mod speed_tests;
#[cfg(all(test, not(any(loom, miri))))]
mod steering_tests;
#[cfg(all(test, not(any(loom, miri))))]
mod tests;
#[cfg(all(test, not(any(loom, miri))))]
mod virtual_link_tests;
