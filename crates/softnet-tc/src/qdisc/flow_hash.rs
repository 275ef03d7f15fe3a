//! By what the fair qdiscs tell flows apart.

use softnet::mem::Packet;
use softnet::qdisc::Cx;
use softnet::wire;

use crate::filter::{Filters, Lost};
use crate::handle::Handle;

/// The flow that a packet's priority or a filter names: `major:minor`, major that of the qdisc,
/// minor 1 to `flows`.
///
/// # Errors
/// If a filter takes it out.
#[inline]
pub(crate) fn named_flow(
    packet: &mut Packet,
    qdisc: Handle,
    filters: &Filters,
    flows: usize,
    cx: &mut Cx,
) -> Result<Option<usize>, Lost> {
    let named = Handle::from_raw(packet.priority());
    let class = if named.major() != 0 && named.qdisc() == qdisc {
        Some(named)
    } else {
        filters.classify(packet, cx).class()?
    };
    let flow = class.and_then(|class| usize::from(class.minor()).checked_sub(1));
    Ok(flow.filter(|&flow| flow < flows))
}

/// The hash that was noted for the packet's flow, or that of its headers, which is noted then; 0
/// for a frame that cannot be read.
#[inline]
pub(crate) fn flow_hash(packet: &mut Packet) -> u32 {
    match packet.flow_hash() {
        Some(hash) => hash,
        None => compute(packet),
    }
}

#[inline(never)]
fn compute(packet: &mut Packet) -> u32 {
    let hash = wire::flow_hash(packet.data(), packet.len());
    packet.set_flow_hash(hash);
    hash
}

/// A flow's place among so many, by its keyed hash. Multiplied and shifted: without a division.
#[inline]
pub(crate) fn place(packet: &mut Packet, seed: u64, flows: usize) -> usize {
    let hash = keyed(flow_hash(packet), seed);
    ((u64::from(hash) * flows as u64) >> 32) as usize
}

/// Spreads hashes, which a sender may know or choose, by a secret seed: nobody outside can tell
/// which of them come together. (The seed and two rounds of David Stafford's mix 13.)
#[inline]
pub(crate) fn keyed(hash: u32, seed: u64) -> u32 {
    let mut mixed = u64::from(hash) ^ seed;
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ mixed >> 27 ^ seed.rotate_left(32)).wrapping_mul(0x94D0_49BB_1331_11EB);
    (mixed >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hash::{BuildHasher, RandomState};

    /// Consecutive numbers, which an embedder may note, spread as if drawn, in the low bits as in
    /// the high ones; another seed spreads them otherwise.
    #[test]
    fn numbers_spread_evenly() {
        const PLACES: usize = 256;
        const EACH: u32 = 100;
        let state = RandomState::new();
        // The first two of them once left bits uneven.
        let seeds = [
            0x483e_3d9f_e31d_b9c9_u64,
            0x32cd_0dc0_7958_45f5,
            0,
            1,
            u64::MAX,
        ];
        let seeds = seeds.into_iter().chain((0..20).map(|n| state.hash_one(n)));
        for (seed, shift) in seeds.flat_map(|seed| [(seed, 0), (seed, 24)]) {
            let mut places = [0_u32; PLACES];
            for number in 0..PLACES as u32 * EACH {
                places[(keyed(number, seed) >> shift) as usize % PLACES] += 1;
            }
            // Chi-squared with 255 degrees of freedom is above 500 less than once in 10^17.
            let squares = places.map(|n| f64::from(n.abs_diff(EACH)).powi(2));
            let chi: f64 = squares.iter().sum::<f64>() / f64::from(EACH);
            assert!(chi < 500.0, "{chi} with seed {seed:#x}");
        }
        let same = |hash: &u32| keyed(*hash, 1) % 256 == keyed(*hash, 2) % 256;
        assert!((0..1000).filter(same).count() < 100);
    }
}
