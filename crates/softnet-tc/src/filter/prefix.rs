//! A range of addresses of one family.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A range of addresses of one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    address: IpAddr,
    len: u8,
}

impl Prefix {
    /// All addresses that share their first `len` bits with `address`; `None` if an address has
    /// fewer bits.
    pub fn new(address: IpAddr, len: u8) -> Option<Prefix> {
        (len <= if address.is_ipv4() { 32 } else { 128 }).then_some(Prefix { address, len })
    }

    /// True if the range has this address.
    pub fn contains(&self, address: IpAddr) -> bool {
        let same = match (self.address, address) {
            (IpAddr::V4(a), IpAddr::V4(b)) => (u32::from(a) ^ u32::from(b)).leading_zeros(),
            (IpAddr::V6(a), IpAddr::V6(b)) => (u128::from(a) ^ u128::from(b)).leading_zeros(),
            _ => return false,
        };
        same >= u32::from(self.len)
    }

    /// True if it is one of IPv4 addresses.
    pub fn is_ipv4(&self) -> bool {
        self.address.is_ipv4()
    }

    /// True if it is the same range.
    pub(super) fn is_same(&self, other: &Prefix) -> bool {
        self.len == other.len && self.contains(other.address)
    }

    /// An address of the range.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// The range's first address.
    pub fn network(&self) -> IpAddr {
        match self.address {
            IpAddr::V4(address) => {
                let behind = u32::MAX.checked_shr(self.len.into()).unwrap_or(0);
                Ipv4Addr::from_bits(address.to_bits() & !behind).into()
            }
            IpAddr::V6(address) => {
                let behind = u128::MAX.checked_shr(self.len.into()).unwrap_or(0);
                Ipv6Addr::from_bits(address.to_bits() & !behind).into()
            }
        }
    }

    /// Bits that count.
    pub fn bits(&self) -> u8 {
        self.len
    }
}

impl std::fmt::Display for Prefix {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.address, self.len)
    }
}
