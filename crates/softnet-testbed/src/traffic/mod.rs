//! Traffic between two hosts of a [`Topology`](crate::hosts::Topology), counted where it arrives.
//!
//! [`udp`] are datagrams flat out or paced, [`one_way`] one datagram at a time while all sleeps,
//! [`rr`] requests and responses, [`senders`] many short TCP connections to a [`sink`], [`flows`]
//! those of a description. [`iperf`] and [`iperf2`] run the programs of that name. A [`window`] is
//! the time that counts.

mod events;
pub mod flows;
pub mod iperf;
pub mod iperf2;
pub mod one_way;
pub mod rr;
pub mod senders;
pub mod sink;
#[allow(
    unsafe_code,
    reason = "recvmsg with control messages has no safe wrapper"
)]
mod stamp;
pub mod udp;
pub mod window;
