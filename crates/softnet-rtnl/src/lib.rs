//! Control over rtnetlink: the messages that the unmodified `tc`, `ip` and `bridge` send, and what
//! answers them.
//!
//! [`nl`] reads and writes messages. A [`Service`](nl::Service) answers them.

#![forbid(unsafe_code)]

mod link;
pub mod nl;
mod service;
pub mod tc;

pub use service::Rtnl;
