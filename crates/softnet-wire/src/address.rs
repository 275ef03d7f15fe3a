//! Ethernet addresses.

use std::fmt;

/// A MAC address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct EthernetAddress(pub [u8; 6]);

impl EthernetAddress {
    /// `ff:ff:ff:ff:ff:ff`.
    pub const BROADCAST: EthernetAddress = EthernetAddress([0xff; 6]);

    /// True if it names a group (the broadcast address does).
    pub const fn is_multicast(self) -> bool {
        self.0[0] & 1 != 0
    }

    /// True if it names everyone.
    pub fn is_broadcast(self) -> bool {
        self == EthernetAddress::BROADCAST
    }

    /// True if all bytes are zero, which no station may use.
    pub fn is_zero(self) -> bool {
        self.0 == [0; 6]
    }

    /// True if it is one of the 16 reserved addresses `01:80:c2:00:00:0x` that bridges do not
    /// forward (IEEE 802.1D 7.12.6).
    pub fn is_link_local(self) -> bool {
        self.0[..5] == [0x01, 0x80, 0xc2, 0x00, 0x00] && self.0[5] & 0xf0 == 0
    }

    /// The address as a number.
    #[inline]
    pub fn to_u64(self) -> u64 {
        let [a, b, c, d, e, f] = self.0;
        u64::from_be_bytes([0, 0, a, b, c, d, e, f])
    }
}

impl fmt::Display for EthernetAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}
