//! The core of Softnet, Linux's packet path and traffic control for user space: what a program
//! links that sends packets from many threads.
//!
//! A [`Packet`](mem::Packet) of a [`Pool`](mem::Pool) is an owned value; dropping it frees it.
//! [`Device::transmit`](tx::Device::transmit) takes a list of them from any thread. In one
//! compare-and-swap the sender either becomes the queue's owner or pushes its list for the owner.
//! The owner enqueues what was pushed to the [`Qdisc`](qdisc::Qdisc), dequeues, and hands batches
//! to the driver's [`TxRing`](tx::TxRing). A single packet waits for no other thread, a list for at
//! most 400 ns for each of its packets. Every packet that is not sent has a
//! [`DropReason`](stats::DropReason).
//!
//! ```
//! use std::time::Duration;
//!
//! use softnet::mem::PacketList;
//! use softnet::qdisc::PfifoFast;
//! use softnet::tx::{Sender, Sent, TxRing, Xmit};
//!
//! /// A driver that takes everything, and frees it.
//! struct Sink;
//!
//! impl TxRing for Sink {
//!     fn xmit(&mut self, packets: &mut PacketList, sent: &mut Sent) -> Xmit {
//!         packets.take().iter().for_each(|packet| sent.count(packet));
//!         Xmit::Complete
//!     }
//! }
//!
//! let out = Sender::builder().qdisc(PfifoFast::new(1000)).start(Sink)?;
//! std::thread::scope(|scope| {
//!     for _ in 0..4 {
//!         scope.spawn(|| {
//!             for _ in 0..100 {
//!                 let packet = out.packet(&[0; 60]).expect("more than 400 buffers");
//!                 out.transmit(packet);
//!             }
//!         });
//!     }
//! });
//! let device = out.device().clone();
//! out.stop(Duration::from_secs(5));
//! assert_eq!(device.stats().tx_packets, 400);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! `softnet-tc` has the other qdiscs, trees of them and a simulator; `softnet-engine` has workers,
//! bridges and ports; `softnet-io` has drivers. What is on the wire is read by [`wire`].
//!
//! Nothing here does I/O or reads a clock: every call that depends on time takes `now` ([`time`]).
//! `unsafe` code is in `mem` and `sync` only. Items for Softnet's other crates alone are left out
//! of these pages, and may change at any time. Codes in comments such as `INV-TX-1` and
//! `BUG-TX-15` are defined in `docs/invariants.md`.

#![deny(unsafe_code)]

pub mod mem;
pub mod offload;
#[doc(hidden)]
pub mod probes;
pub mod qdisc;
pub mod stats;
#[doc(hidden)]
pub mod sync;
pub mod time;
pub mod tx;

pub use softnet_wire as wire;

// The fuzzers' bodies, which tests replay, name the crate from outside.
#[cfg(test)]
extern crate self as softnet;

#[cfg(any(test, feature = "testing"))]
pub mod testing;
