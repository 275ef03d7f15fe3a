//! Rates, and the time that sizes take at them, as tc and the kernel exchange them (`struct
//! tc_ratespec`, `struct psched_ratecfg`). Times are in ticks of 64 ns.

use softnet_tc::{LinkCost, LinkLayer};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::nl::{Attr, Rule};

const SECOND: u128 = 1_000_000_000;
/// Nanoseconds of a tick (`PSCHED_SHIFT`).
const TICK: u64 = 64;
/// `TC_LINKLAYER_MASK`.
const LINKLAYER_MASK: u8 = 0x0f;
const ETHERNET: u8 = 1;
const ATM: u8 = 2;
/// Entries of a rate table.
const SLOTS: usize = 256;
/// `TC_RTAB_SIZE`.
const TABLE_SIZE: usize = SLOTS * 4;

/// Rule of a rate table.
pub(in crate::tc) const TABLE: Rule = Rule::Binary { max: TABLE_SIZE };

/// `struct tc_ratespec`.
#[derive(Clone, Copy, Debug, Default, FromBytes, Immutable, IntoBytes)]
#[repr(C)]
pub(in crate::tc) struct RateSpec {
    pub(in crate::tc) cell_log: u8,
    pub(in crate::tc) linklayer: u8,
    pub(in crate::tc) overhead: u16,
    pub(in crate::tc) cell_align: i16,
    pub(in crate::tc) mpu: u16,
    pub(in crate::tc) rate: u32,
}

impl RateSpec {
    /// As the kernel shows it. Rates above 32 bits have an attribute of their own.
    pub(in crate::tc) fn new(rate: u64, link: &LinkCost) -> RateSpec {
        RateSpec {
            linklayer: match link.linklayer {
                LinkLayer::Ethernet => ETHERNET,
                LinkLayer::Atm => ATM,
            },
            overhead: link.overhead,
            mpu: link.mpu,
            rate: rate.try_into().unwrap_or(u32::MAX),
            ..RateSpec::default()
        }
    }

    /// Bytes per second, with the attribute for rates above 32 bits.
    pub(in crate::tc) fn rate(&self, rate64: Option<u64>) -> u64 {
        rate64.unwrap_or(0).max(self.rate.into())
    }

    /// Cost of a packet. A tc from before 2013 does not say how the link divides packets; its rate
    /// table shows it.
    pub(in crate::tc) fn link(&self, table: Option<Attr<'_>>) -> LinkCost {
        let linklayer = match self.linklayer & LINKLAYER_MASK {
            0 if table.is_some_and(|table| self.is_atm_table(&table)) => LinkLayer::Atm,
            ATM => LinkLayer::Atm,
            _ => LinkLayer::Ethernet,
        };
        LinkCost {
            overhead: self.overhead,
            mpu: self.mpu,
            linklayer,
        }
    }

    /// True if two sizes of one cell take the same time (`__detect_linklayer`).
    fn is_atm_table(&self, table: &Attr<'_>) -> bool {
        /// Above 100 Mbit/s a table is too coarse.
        const MAX_RATE: u32 = 100_000_000 / 8;
        if self.rate == 0
            || self.rate > MAX_RATE
            || !(1..32).contains(&self.cell_log)
            || table.data.len() != TABLE_SIZE
        {
            return false;
        }
        let times: Vec<u32> = table.array().collect();
        let low = u32::from(self.mpu).next_multiple_of(48);
        let high = (low + 1).next_multiple_of(48);
        let low = (low >> self.cell_log) as usize;
        // Below 0 where a slot is larger than a cell.
        let Some(high) = ((high >> self.cell_log) as usize).checked_sub(1) else {
            return false;
        };
        times[0] != 0 && high > low && high < SLOTS && times[low] == times[high]
    }
}

/// Nanoseconds that `ticks` are.
pub(in crate::tc) fn nanos(ticks: u32) -> u64 {
    u64::from(ticks) * TICK
}

/// Ticks that a time is.
pub(in crate::tc) fn ticks(nanos: u64) -> u32 {
    (nanos / TICK).try_into().unwrap_or(u32::MAX)
}

/// The size of a bucket that is filled in so many ticks: as tc shows it, rounded down.
pub(in crate::tc) fn bucket_of_ticks(ticks: u32, rate: u64) -> u64 {
    let bytes = u128::from(nanos(ticks)) * u128::from(rate) / SECOND;
    bytes.try_into().unwrap_or(u64::MAX)
}

/// Ticks in which a bucket is filled, rounded up, so that [`bucket_of_ticks`] gives its size.
pub(in crate::tc) fn ticks_of_bucket(bytes: u64, rate: u64) -> u32 {
    let time = u128::from(bytes) * SECOND;
    let tick = u128::from(rate.max(1)) * u128::from(TICK);
    time.div_ceil(tick).try_into().unwrap_or(u32::MAX)
}

/// Nanoseconds that one packet takes on a link, rounded as the kernel does (`psched_l2t_ns`).
pub(in crate::tc) fn time_of_packet(len: u64, rate: u64, link: &LinkCost) -> u64 {
    // 1 / rate as `mult >> shift`, with 32 significant bits (`psched_ratecfg_precompute__`).
    let (mut factor, mut shift) = (1_000_000_000_u64, 0);
    let mut mult = factor / rate.max(1);
    while mult >> 31 == 0 && factor >> 63 == 0 {
        factor <<= 1;
        shift += 1;
        mult = factor / rate.max(1);
    }
    let time = (u128::from(link.charge(len)) * u128::from(mult)) >> shift;
    time.try_into().unwrap_or(u64::MAX)
}

/// The longest packet that a link takes in so many nanoseconds, at most 32 bits
/// (`psched_ns_t2l`).
pub(in crate::tc) fn packet_of_time(nanos: u64, rate: u64, link: &LinkCost) -> u32 {
    let mut len = u128::from(nanos) * u128::from(rate) / SECOND;
    if link.linklayer == LinkLayer::Atm {
        len = len / 53 * 48;
    }
    let len = len.saturating_sub(link.overhead.into());
    len.try_into().unwrap_or(u32::MAX)
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    use proptest::prelude::*;

    proptest! {
        /// A size given in ticks is shown as the same size; where a tick is no less than a byte,
        /// in the same ticks.
        #[test]
        fn ticks_come_back(given: u32, rate in 1..=1_000_000_000_000_u64) {
            let size = bucket_of_ticks(given, rate);
            let shown = ticks_of_bucket(size, rate);
            prop_assert_eq!(bucket_of_ticks(shown, rate), size);
            prop_assert!(shown == given || rate < 15_625_000);
        }

        /// Bytes given to tc 7.3, which rounds up. Ticks of 32 bits are 274 seconds.
        #[test]
        fn bytes_come_back(bytes: u32, rate in 1..15_625_000_u64) {
            let bytes = u64::from(bytes).min(274 * rate);
            prop_assert_eq!(bucket_of_ticks(ticks_of_bucket(bytes, rate), rate), bytes);
        }
    }
}
