//! Numbers of `linux/neighbour.h`.

use softnet_engine::forward::FdbState;

use crate::nl::{Policy, Rule};

/// Attributes of `RTM_*NEIGH`.
pub(super) mod nda {
    pub(crate) const LLADDR: u16 = 2;
    pub(crate) const CACHEINFO: u16 = 3;
    pub(crate) const VLAN: u16 = 5;
    pub(crate) const IFINDEX: u16 = 8;
    pub(crate) const MASTER: u16 = 9;
    pub(crate) const FLAGS_EXT: u16 = 15;
    pub(crate) const NDM_STATE_MASK: u16 = 16;
    pub(crate) const NDM_FLAGS_MASK: u16 = 17;
    /// Highest type that is known here.
    pub(crate) const MAX: u16 = 17;
}

/// Flags of an entry (`NTF_*`).
pub(super) mod ntf {
    pub(crate) const USE: u8 = 1;
    pub(crate) const SELF: u8 = 1 << 1;
    pub(crate) const MASTER: u8 = 1 << 2;
    pub(crate) const EXT_LEARNED: u8 = 1 << 4;
    pub(crate) const OFFLOADED: u8 = 1 << 5;
    pub(crate) const STICKY: u8 = 1 << 6;
}

/// States of an entry (`NUD_*`).
pub(super) mod nud {
    pub(crate) const REACHABLE: u16 = 2;
    pub(crate) const NOARP: u16 = 0x40;
    pub(crate) const PERMANENT: u16 = 0x80;
}

/// Attributes of `RTM_*NEIGH`.
pub(super) static POLICY: Policy = Policy::new(
    nda::MAX,
    &[
        (nda::IFINDEX, Rule::U32),
        (nda::MASTER, Rule::U32),
        (nda::FLAGS_EXT, Rule::U32),
        (nda::NDM_STATE_MASK, Rule::U16),
        (nda::NDM_FLAGS_MASK, Rule::U8),
    ],
);

/// `fdb_to_nud`.
pub(super) fn state_bits(state: FdbState) -> u16 {
    match state {
        FdbState::Permanent => nud::PERMANENT,
        FdbState::Static => nud::NOARP,
        FdbState::Dynamic => nud::REACHABLE,
    }
}
