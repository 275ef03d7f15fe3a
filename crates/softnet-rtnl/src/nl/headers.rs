//! The headers at the front of a message's payload, one for each family of requests.
//!
//! The fields are the kernel's without their prefix, in the machine's byte order.

#![allow(missing_docs, reason = "the fields are the kernel's")]
#![allow(
    missing_debug_implementations,
    reason = "zerocopy's derive makes types for fields"
)]

use zerocopy::{FromBytes, Immutable, IntoBytes};

macro_rules! headers {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $type:ty,)* })*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
            #[derive(FromBytes, Immutable, IntoBytes)]
            #[repr(C)]
            pub struct $name { $(pub $field: $type,)* }
        )*
    };
}

headers! {
    /// `struct nlmsghdr`: in front of every message.
    NlMsgHdr { length: u32, kind: u16, flags: u16, seq: u32, pid: u32, }

    /// `struct rtgenmsg`: the family alone, which every header starts with.
    RtGenMsg { family: u8, }

    /// `struct ifinfomsg`: `RTM_*LINK`, and `RTM_*NEIGH` dumps of older clients.
    IfInfoMsg { family: u8, pad: u8, kind: u16, index: i32, flags: u32, change: u32, }

    /// `struct ndmsg`: `RTM_*NEIGH`.
    NdMsg {
        family: u8, pad1: u8, pad2: u16, ifindex: i32, state: u16, flags: u8, kind: u8,
    }

    /// `struct tcmsg`: `RTM_*QDISC`, `RTM_*TCLASS`, `RTM_*TFILTER`, `RTM_*CHAIN`.
    TcMsg {
        family: u8, pad1: u8, pad2: u16, ifindex: i32, handle: u32, parent: u32, info: u32,
    }

    /// `struct br_port_msg`: `RTM_*MDB`.
    BrPortMsg { family: u8, pad1: u8, pad2: u16, ifindex: u32, }

    /// `struct br_mdb_entry`: an attribute of `RTM_*MDB`. The address has 4, 16 or 6 bytes, by
    /// `proto`, which is in network order.
    BrMdbEntry {
        ifindex: u32, state: u8, flags: u8, vid: u16, address: [u8; 16], proto: u16, pad: u16,
    }

    /// `struct br_vlan_msg`: `RTM_*VLAN`.
    BrVlanMsg { family: u8, reserved1: u8, reserved2: u16, ifindex: u32, }
}
