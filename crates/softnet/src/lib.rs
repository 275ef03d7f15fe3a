//! Linux's packet path and traffic control for user space, rebuilt for many cores.
//!
//! A packet's way through this crate: a driver's receive queue ([`rx::RxQueue`]) fills a
//! [`mem::PacketList`] from a [`mem::Pool`]; a worker (see [`rx`]) polls it and hands the list
//! to [`forward`]; the chosen port's [`tx::Device`] takes it over ([`tx::TxQueue`]: adoption
//! list, queueing discipline, driver ring); the buffer goes home to its pool when the driver is done.
//!
//! What is on the wire is read by [`wire`], the crate `softnet-wire`.
//!
//! This crate does no I/O and makes no system call but to wake a thread: drivers live in
//! `softnet-io`. `unsafe` code is confined to [`mem`] and [`sync`].
//! Nothing here reads a clock: every time-dependent call takes `now` (see [`time`]).

#![deny(unsafe_code)]

pub mod mem;
pub mod offload;
pub mod qdisc;
pub mod stats;
pub mod sync;
pub mod time;
pub mod tx;

pub use softnet_wire as wire;

#[cfg(any(test, feature = "testing"))]
pub mod testing;
