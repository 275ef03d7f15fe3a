//! Numbers of `linux/if_link.h` and `linux/if.h`, and what attributes of links may be.

use crate::nl::{Policy, Rule};

/// Attributes of `RTM_*LINK`.
pub(super) mod ifla {
    pub(crate) const ADDRESS: u16 = 1;
    pub(crate) const BROADCAST: u16 = 2;
    pub(crate) const IFNAME: u16 = 3;
    pub(crate) const MTU: u16 = 4;
    pub(crate) const LINK: u16 = 5;
    pub(crate) const QDISC: u16 = 6;
    pub(crate) const STATS: u16 = 7;
    pub(crate) const MASTER: u16 = 10;
    pub(crate) const PROTINFO: u16 = 12;
    pub(crate) const TXQLEN: u16 = 13;
    pub(crate) const MAP: u16 = 14;
    pub(crate) const OPERSTATE: u16 = 16;
    pub(crate) const LINKMODE: u16 = 17;
    pub(crate) const LINKINFO: u16 = 18;
    pub(crate) const NET_NS_PID: u16 = 19;
    pub(crate) const IFALIAS: u16 = 20;
    pub(crate) const STATS64: u16 = 23;
    pub(crate) const AF_SPEC: u16 = 26;
    pub(crate) const GROUP: u16 = 27;
    pub(crate) const NET_NS_FD: u16 = 28;
    pub(crate) const EXT_MASK: u16 = 29;
    pub(crate) const PROMISCUITY: u16 = 30;
    pub(crate) const NUM_TX_QUEUES: u16 = 31;
    pub(crate) const NUM_RX_QUEUES: u16 = 32;
    pub(crate) const CARRIER: u16 = 33;
    pub(crate) const PROTO_DOWN: u16 = 39;
    pub(crate) const MIN_MTU: u16 = 50;
    pub(crate) const MAX_MTU: u16 = 51;
    pub(crate) const ALT_IFNAME: u16 = 53;
    pub(crate) const ALLMULTI: u16 = 61;
    /// Highest type that is known here.
    pub(crate) const MAX: u16 = 66;
}

/// Attributes in `IFLA_LINKINFO`.
pub(super) mod info {
    pub(crate) const KIND: u16 = 1;
    pub(crate) const DATA: u16 = 2;
    pub(crate) const SLAVE_KIND: u16 = 4;
    pub(crate) const SLAVE_DATA: u16 = 5;
}

/// Attributes in `IFLA_INFO_DATA` of the kind `tun`.
pub(super) mod tun {
    pub(crate) const TYPE: u16 = 3;
    pub(crate) const PI: u16 = 4;
    pub(crate) const VNET_HDR: u16 = 5;
    pub(crate) const PERSIST: u16 = 6;
    pub(crate) const MULTI_QUEUE: u16 = 7;
    pub(crate) const NUM_QUEUES: u16 = 8;
    pub(crate) const NUM_DISABLED_QUEUES: u16 = 9;
    /// The value of `TYPE` for a TAP device.
    pub(crate) const TAP: u8 = 2;
}

/// Flags of a link (`IFF_*`).
pub(super) mod iff {
    pub(crate) const UP: u32 = 1;
    pub(crate) const BROADCAST: u32 = 1 << 1;
    pub(crate) const LOOPBACK: u32 = 1 << 3;
    pub(crate) const RUNNING: u32 = 1 << 6;
    pub(crate) const NOARP: u32 = 1 << 7;
    pub(crate) const MULTICAST: u32 = 1 << 12;
    pub(crate) const LOWER_UP: u32 = 1 << 16;
    /// Flags that the kernel lets nobody set (`IFF_VOLATILE`): `LOOPBACK`, `POINTOPOINT`,
    /// `BROADCAST`, `RUNNING`, `MASTER`, `SLAVE`, `LOWER_UP`, `DORMANT` and `ECHO`.
    pub(crate) const VOLATILE: u32 = 0x7_0c5a;
}

/// `IF_OPER_*` (RFC 2863).
pub(super) mod oper {
    pub(crate) const UNKNOWN: u8 = 0;
    pub(crate) const DOWN: u8 = 2;
    pub(crate) const UP: u8 = 6;
}

/// Ethernet, as `ARPHRD_ETHER`.
pub(super) const ARPHRD_ETHER: u16 = 1;
/// `lo`, as `ARPHRD_LOOPBACK`.
pub(super) const ARPHRD_LOOPBACK: u16 = 772;

/// Attributes of `RTM_*LINK`.
pub(super) static LINK_POLICY: Policy = Policy::new(
    ifla::MAX,
    &[
        (ifla::ADDRESS, Rule::Binary { max: 32 }),
        (ifla::BROADCAST, Rule::Binary { max: 32 }),
        (ifla::IFNAME, Rule::Str { max: 15 }),
        (ifla::MTU, Rule::U32),
        (ifla::LINK, Rule::U32),
        (ifla::MASTER, Rule::U32),
        (ifla::TXQLEN, Rule::U32),
        (ifla::LINKINFO, Rule::NestedAny),
        (ifla::NET_NS_PID, Rule::U32),
        (ifla::NET_NS_FD, Rule::U32),
        // May be empty, which takes the alias away.
        (ifla::IFALIAS, Rule::Binary { max: 255 }),
        (ifla::GROUP, Rule::U32),
        (ifla::EXT_MASK, Rule::U32),
        (ifla::NUM_TX_QUEUES, Rule::U32),
        (ifla::NUM_RX_QUEUES, Rule::U32),
        (ifla::CARRIER, Rule::U8),
        (ifla::PROTO_DOWN, Rule::U8),
        (ifla::ALT_IFNAME, Rule::Str { max: 127 }),
    ],
);

/// Attributes of `IFLA_LINKINFO`.
pub(super) static INFO_POLICY: Policy = Policy::new(
    info::SLAVE_DATA,
    &[
        (info::KIND, Rule::Str { max: 0 }),
        (info::DATA, Rule::NestedAny),
        (info::SLAVE_KIND, Rule::Str { max: 0 }),
        (info::SLAVE_DATA, Rule::NestedAny),
    ],
);
