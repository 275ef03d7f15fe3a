//! The VLANs of a bridge's port (IEEE 802.1Q 8.8), as `bridge vlan` sets them.

use std::ops::RangeInclusive;

/// VLAN identifiers that a port may have: 0 and 4095 are reserved (IEEE 802.1Q table 9-2).
pub const VLAN_IDS: RangeInclusive<u16> = 1..=4094;

const WORDS: usize = 64;

/// Treatment of a VLAN's frames at a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VlanFlags {
    /// Frames that arrive without a tag are of this VLAN. Of one VLAN of a port at most.
    pub pvid: bool,
    /// Frames leave without a tag.
    pub untagged: bool,
}

/// The VLANs that a port is a member of. Others it neither takes nor sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortVlans {
    members: [u64; WORDS],
    untagged: [u64; WORDS],
    /// Among `members`, or 0.
    pvid: u16,
}

impl Default for PortVlans {
    /// None.
    fn default() -> Self {
        PortVlans {
            members: [0; WORDS],
            untagged: [0; WORDS],
            pvid: 0,
        }
    }
}

fn has(set: &[u64; WORDS], vlan: u16) -> bool {
    let word = set.get(usize::from(vlan / 64));
    word.is_some_and(|word| word >> (vlan % 64) & 1 != 0)
}

/// Takes a VLAN below 4096.
fn put(set: &mut [u64; WORDS], vlan: u16, member: bool) {
    let bit = 1 << (vlan % 64);
    let word = &mut set[usize::from(vlan / 64)];
    *word = if member { *word | bit } else { *word & !bit };
}

impl PortVlans {
    /// True if frames of a VLAN pass.
    pub fn contains(&self, vlan: u16) -> bool {
        has(&self.members, vlan)
    }

    /// True if frames of a VLAN leave without a tag.
    pub fn is_untagged(&self, vlan: u16) -> bool {
        has(&self.untagged, vlan)
    }

    /// The VLAN of frames that arrive without a tag. They are dropped if there is none.
    pub fn pvid(&self) -> Option<u16> {
        (self.pvid != 0).then_some(self.pvid)
    }

    /// The VLANs in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = (u16, VlanFlags)> {
        let members = VLAN_IDS.filter(|&vlan| self.contains(vlan));
        members.map(|vlan| {
            let flags = VlanFlags {
                pvid: vlan == self.pvid,
                untagged: self.is_untagged(vlan),
            };
            (vlan, flags)
        })
    }

    /// The VLANs in ascending order, neighbours with the same flags together.
    pub fn ranges(&self) -> Vec<(RangeInclusive<u16>, VlanFlags)> {
        let mut ranges: Vec<(RangeInclusive<u16>, VlanFlags)> = Vec::new();
        for (vlan, flags) in self.iter() {
            match ranges.last_mut() {
                Some((range, of)) if *of == flags && *range.end() + 1 == vlan => {
                    *range = *range.start()..=vlan;
                }
                _ => ranges.push((vlan..=vlan, flags)),
            }
        }
        ranges
    }

    /// The VLANs of a port that has just joined a bridge.
    pub(crate) fn with_default(pvid: Option<u16>) -> PortVlans {
        let mut vlans = PortVlans::default();
        vlans.change_default(None, pvid);
        vlans
    }

    /// The bridge's default pvid is another. Only where nobody changed the old one here, and the
    /// new one is not in use.
    pub(crate) fn change_default(&mut self, old: Option<u16>, new: Option<u16>) {
        let unchanged = |vlan: u16| self.pvid == vlan && self.is_untagged(vlan);
        if !old.is_none_or(unchanged) || new.is_some_and(|vlan| self.contains(vlan)) {
            return;
        }
        let flags = VlanFlags {
            pvid: true,
            untagged: true,
        };
        new.into_iter().for_each(|vlan| self.add(vlan, flags));
        old.into_iter().for_each(|vlan| self.remove(vlan));
    }

    /// Adds a VLAN of [`VLAN_IDS`], or gives one other flags. A pvid that it was without being one
    /// now is none any more.
    /// Others are passed over.
    pub fn add(&mut self, vlan: u16, flags: VlanFlags) {
        if !VLAN_IDS.contains(&vlan) {
            return;
        }
        put(&mut self.members, vlan, true);
        put(&mut self.untagged, vlan, flags.untagged);
        if flags.pvid {
            self.pvid = vlan;
        } else if self.pvid == vlan {
            self.pvid = 0;
        }
    }

    /// Removes a VLAN of [`VLAN_IDS`].
    pub(crate) fn remove(&mut self, vlan: u16) {
        put(&mut self.members, vlan, false);
        put(&mut self.untagged, vlan, false);
        if self.pvid == vlan {
            self.pvid = 0;
        }
    }
}
