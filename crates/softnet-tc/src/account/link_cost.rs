//! Cost of a packet on the link behind a shaper, which may not frame it as Ethernet does
//! (`psched_l2t_ns`, tc-stab(8)).

use softnet::qdisc::WireSize;

/// Bytes of Ethernet header with a VLAN tag.
pub(crate) const MAX_HEADER: u64 = 18;

/// Link layer: how the link divides packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LinkLayer {
    /// As they are.
    #[default]
    Ethernet,
    /// In ATM cells of 53 bytes that carry 48 (also `adsl`).
    Atm,
}

impl LinkLayer {
    /// Bytes that it makes of so many.
    pub(crate) fn divide(self, len: u64) -> u64 {
        match self {
            LinkLayer::Ethernet => len,
            LinkLayer::Atm => len.div_ceil(48) * 53,
        }
    }
}

/// The bytes that a link takes for a packet beyond the packet's own length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCost {
    /// Bytes added to each packet.
    pub overhead: u16,
    /// The least that a packet costs, in bytes, `overhead` included (minimum packet unit).
    pub mpu: u16,
    /// Link layer that divides the sum.
    pub linklayer: LinkLayer,
}

impl LinkCost {
    /// True if a packet costs its length.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        self.overhead == 0 && self.mpu == 0 && self.linklayer == LinkLayer::Ethernet
    }

    /// Bytes charged for one packet of `len` bytes.
    pub fn charge(&self, len: u64) -> u64 {
        let len = (len + u64::from(self.overhead)).max(u64::from(self.mpu));
        self.linklayer.divide(len)
    }

    /// Bytes charged for a frame. A large frame is charged for each of its wire packets (the
    /// kernel adds `overhead` once).
    #[inline]
    pub fn cost(&self, size: WireSize) -> u64 {
        if self.is_plain() {
            return size.bytes;
        }
        let others = size.packets - 1;
        let last = size.bytes.saturating_sub(others * size.each);
        others * self.charge(size.each) + self.charge(last)
    }
}

#[cfg(all(test, not(any(loom, miri))))]
mod tests {
    use super::*;

    #[test]
    fn framing_is_charged() {
        let plain = LinkCost::default();
        assert_eq!(plain.charge(1500), 1500);
        let padded = LinkCost {
            overhead: 24,
            mpu: 84,
            ..plain
        };
        assert_eq!(
            (padded.charge(40), padded.charge(60), padded.charge(61)),
            (84, 84, 85)
        );
        let atm = LinkCost {
            overhead: 8,
            linklayer: LinkLayer::Atm,
            ..plain
        };
        // AAL5: 40 + 8 bytes are one cell, one more byte is a second cell.
        assert_eq!(
            (atm.charge(40), atm.charge(41), atm.charge(1500)),
            (53, 106, 32 * 53)
        );
        let large = WireSize {
            packets: 3,
            bytes: 1000 + 1000 + 500,
            each: 1000,
        };
        assert_eq!(plain.cost(large), 2500);
        assert_eq!(padded.cost(large), 2500 + 3 * 24);
        assert_eq!(atm.cost(large), 2 * 21 * 53 + 11 * 53);
    }
}
