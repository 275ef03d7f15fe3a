//! Netlink messages: what a request says, checked as the kernel checks it, and what answers it.
//!
//! - A [`Request`] is one message of a datagram; [`Attrs`] its attributes in a table, checked
//!   against a [`Policy`]; an [`Attr`] one of them.
//! - A [`Messages`] buffer holds what goes back; a [`Message`] is one that is being written.
//! - A [`Service`] answers requests and dumps; an [`Error`] is a refusal.
//!
//! Requests are hostile: nothing here panics on one, and the work is linear in its length (a table
//! is read in one pass; nests are as deep as policies go, [`MAX_DEPTH`] at most).
//!
//! The flags come from `netlink-packet-core`, and tests read and write messages with
//! `netlink-packet-route`, as an independent peer. Reading and writing is our own code: those
//! crates turn a message into owned enums and report what is wrong with it as prose, where a peer
//! expects the kernel's errno, its text and the offset of the attribute.
//!
//! Source: `lib/nlattr.c`, `net/netlink/af_netlink.c`, `include/net/netlink.h`.

mod attrs;
mod error;
pub mod headers;
mod policy;
mod request;
mod service;
#[cfg(test)]
mod tests;
mod write;

pub use attrs::{Attr, AttrIter, Attrs, MAX_DEPTH};
pub use error::{Errno, Error};
pub use policy::{Policy, Rule, Validation};
pub use request::{Request, Requests};
pub use service::{
    Chunk, Client, Event, Operation, Position, Progress, Replies, Service, Settled,
};
pub use write::{Full, Head, Message, Messages};

pub use netlink_packet_core::{
    NLM_F_ACK, NLM_F_ACK_TLVS, NLM_F_CAPPED, NLM_F_CREATE, NLM_F_DUMP, NLM_F_DUMP_FILTERED,
    NLM_F_DUMP_INTR, NLM_F_ECHO, NLM_F_EXCL, NLM_F_MULTIPART as NLM_F_MULTI, NLM_F_REPLACE,
    NLM_F_REQUEST, NLM_F_ROOT,
};

/// With a deletion: everything that matches, not one object.
pub const NLM_F_BULK: u16 = 0x200;
/// Type of a message that does nothing.
pub const NLMSG_NOOP: u16 = 1;
/// Type of an acknowledgment or error.
pub const NLMSG_ERROR: u16 = 2;
/// Type of the last message of a dump.
pub const NLMSG_DONE: u16 = 3;
/// Type of the message that says that some were lost.
pub const NLMSG_OVERRUN: u16 = 4;
/// Types below are the protocol's own.
pub const NLMSG_MIN_TYPE: u16 = 0x10;
/// Length of a message's header.
pub const NLMSG_HDRLEN: usize = 16;
/// Length of an attribute's header.
pub const NLA_HDRLEN: usize = 4;
/// In an attribute's type: the payload is attributes.
pub const NLA_F_NESTED: u16 = 0x8000;
/// The attribute's type without its flags.
pub const NLA_TYPE_MASK: u16 = 0x3fff;

/// The length of an attribute or message with the padding behind it.
const fn align(length: usize) -> usize {
    length.next_multiple_of(4)
}
