//! Traffic between two hosts of a [`Topology`](crate::hosts::Topology), counted where it arrives.
//!
//! [`udp`] are datagrams flat out or paced, [`rr`] requests and responses, [`senders`] many short
//! TCP connections to a [`sink`], [`flows`] those of a description. [`iperf`] and [`iperf2`] run
//! the programs of that name. A [`window`] is the time that counts.

mod events;
pub mod flows;
pub mod iperf;
pub mod iperf2;
pub mod rr;
pub mod senders;
pub mod sink;
pub mod udp;
pub mod window;
