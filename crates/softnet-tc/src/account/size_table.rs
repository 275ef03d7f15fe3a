//! Size tables (`stab`, tc-stab(8)): what a packet counts as for the qdiscs of a transmit queue,
//! where the link behind it does not frame packets as Ethernet does (`qdisc_get_stab`,
//! `__qdisc_calculate_pkt_len`).
//!
//! A table is the root's; a qdisc below it gets packets that count as the table says. What differs
//! from the kernel: a large frame counts as its wire packets do, each looked up by itself (the
//! kernel looks up the length of the frame). A wire packet counts as one byte at least and as
//! [`MAX_LEN`] at most, so that no round robin takes too many rounds for it (CVE-2026-90058,
//! BUG-TX-17).

use std::sync::Arc;

use softnet::mem::{AccountedLen, Packet};
use softnet::qdisc::WireSize;

use super::link_cost::LinkLayer;

/// Bytes that a wire packet counts as at most (`QDISC_PKT_LEN_MAX`).
const MAX_LEN: u32 = 1 << 20;
/// Bytes that the wire packets of a large frame but the last count as together, at most.
const MAX_FRAME: u64 = 16 << 20;
/// Both logarithms at most (`STAB_SIZE_LOG_MAX`).
const MAX_LOG: u8 = 30;
/// More slots do not fit an attribute of netlink.
const MAX_SLOTS: u32 = 32_749;

/// Why there is no such size table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SizeTableError {
    /// Slots are announced, but not there.
    #[error("Size table data attribute is missing")]
    NoData,
    /// Other slots than announced.
    #[error("Invalid size of size table")]
    Slots,
    /// A shift that is too far.
    #[error("Invalid logarithmic size of size table")]
    Logarithm,
    /// A packet would count as its length.
    #[error("a size table needs one of overhead, mpu and linklayer")]
    Empty,
    /// More slots than netlink could carry.
    #[error("tsize must be at most {MAX_SLOTS}")]
    TooLarge,
}

/// Parameters of a size table (`struct tc_sizespec`). Sizes are in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SizeSpec {
    /// A slot is for this power of 2 of lengths.
    pub cell_log: u8,
    /// A slot holds a size divided by this power of 2.
    pub size_log: u8,
    /// Added to a length before its slot is looked up.
    pub cell_align: i16,
    /// Added to each length.
    pub overhead: i32,
    /// As tc numbers them; not used here.
    pub linklayer: u32,
    /// The least size that slots were computed for; not used here.
    pub mpu: u32,
    /// The greatest length that slots were computed for; not used here.
    pub mtu: u32,
    /// Slots; 0: only `overhead` counts.
    pub tsize: u32,
}

/// The options of tc's `stab`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SizeOptions {
    /// The greatest length with a slot of its own. 0: 2047.
    pub mtu: u32,
    /// Slots. 0: 512.
    pub tsize: u32,
    /// The least that a packet counts as.
    pub mpu: u32,
    /// Added to each length.
    pub overhead: i32,
    /// Link layer, which divides packets.
    pub linklayer: Option<LinkLayer>,
}

/// A size table. A clone is the same table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SizeTable {
    spec: SizeSpec,
    slots: Arc<[u16]>,
}

impl SizeTable {
    /// A table from outside, checked as the kernel does.
    ///
    /// # Errors
    /// If the parameters do not fit the slots, or a shift is too far.
    pub fn from_parts(spec: SizeSpec, slots: Option<&[u16]>) -> Result<SizeTable, SizeTableError> {
        let slots = match slots {
            _ if spec.tsize == 0 => &[],
            Some(slots) => slots,
            None => return Err(SizeTableError::NoData),
        };
        if slots.len() != spec.tsize as usize {
            return Err(SizeTableError::Slots);
        }
        if spec.cell_log > MAX_LOG || spec.size_log > MAX_LOG {
            return Err(SizeTableError::Logarithm);
        }
        Ok(SizeTable {
            spec,
            slots: slots.into(),
        })
    }

    /// The table that tc computes.
    ///
    /// # Errors
    /// If it would change nothing, or would be too large.
    pub fn new(options: &SizeOptions) -> Result<SizeTable, SizeTableError> {
        let &SizeOptions {
            mut mtu,
            mut tsize,
            mpu,
            overhead,
            linklayer,
        } = options;
        if linklayer.is_none() && mpu == 0 && overhead == 0 {
            return Err(SizeTableError::Empty);
        }
        let number = match linklayer {
            None => 0,
            Some(LinkLayer::Ethernet) => 1,
            Some(LinkLayer::Atm) => 2,
        };
        let mut spec = SizeSpec {
            overhead,
            linklayer: number,
            mpu,
            ..SizeSpec::default()
        };
        if linklayer != Some(LinkLayer::Atm) && mpu == 0 {
            return SizeTable::from_parts(spec, None);
        }
        if mtu == 0 {
            mtu = 2047;
        }
        if tsize == 0 {
            tsize = 512;
        }
        if tsize > MAX_SLOTS {
            return Err(SizeTableError::TooLarge);
        }
        let slot_of = |len: u32, log: u8| u64::from(len) >> log;
        spec.cell_log = (0..=MAX_LOG)
            .find(|&log| slot_of(mtu, log) < u64::from(tsize))
            .ok_or(SizeTableError::Logarithm)?;
        let sizes = (1..=u64::from(tsize)).map(|slot| {
            let size = (slot << spec.cell_log).max(mpu.into());
            linklayer.unwrap_or_default().divide(size)
        });
        let greatest = sizes.clone().max().unwrap_or(0);
        spec.size_log = (0..=MAX_LOG)
            .find(|&log| greatest >> log <= u64::from(u16::MAX))
            .ok_or(SizeTableError::Logarithm)?;
        let slots: Vec<u16> = sizes.map(|size| (size >> spec.size_log) as u16).collect();
        // A slot holds the size of the greatest length in it.
        (spec.cell_align, spec.mtu, spec.tsize) = (-1, mtu, tsize);
        SizeTable::from_parts(spec, Some(&slots))
    }

    /// Parameters that it was made of.
    pub fn spec(&self) -> &SizeSpec {
        &self.spec
    }

    /// Bytes that a wire packet of `len` bytes counts as.
    pub fn size(&self, len: u64) -> u32 {
        let spec = &self.spec;
        // Lengths are far below 2^40.
        let len = len as i64 + i64::from(spec.overhead);
        let (Some(&last), slots) = (self.slots.last(), self.slots.len() as u64) else {
            return len.clamp(1, MAX_LEN.into()) as u32;
        };
        let slot = (len + i64::from(spec.cell_align)).max(0) as u64 >> spec.cell_log;
        // Beyond the last slot the table goes on as often as needed.
        let (rounds, slot) = (slot / slots, slot % slots);
        let size = u64::from(last) * rounds + u64::from(self.slots[slot as usize]);
        (size.min(MAX_LEN.into()) << spec.size_log).clamp(1, MAX_LEN.into()) as u32
    }

    /// Lets a packet count as the table says.
    pub(crate) fn account(&self, packet: &mut Packet) {
        packet.set_accounted(None);
        let WireSize {
            packets,
            bytes,
            each,
        } = (&*packet).into();
        let last = bytes.saturating_sub((packets - 1) * each);
        packet.set_accounted(Some(AccountedLen {
            each: self.size(each).min((MAX_FRAME / packets) as u32),
            last: self.size(last),
        }));
    }
}
