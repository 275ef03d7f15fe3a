//! Control over rtnetlink: the messages that the unmodified `tc`, `ip` and `bridge` send, and what
//! answers them.
//!
//! [`nl`] reads and writes messages. A [`Service`](nl::Service) answers them. A
//! [`Server`](server::Server) listens on a Unix socket, in the place of the kernel's netlink.

#![forbid(unsafe_code)]

mod audit;
#[cfg(test)]
mod bridge_tests;
mod fdb;
mod host;
mod link;
mod mdb;
pub mod nl;
pub mod server;
mod service;
pub mod tc;
#[cfg(test)]
mod testing;

pub use service::{First, Keep, Rtnl};
