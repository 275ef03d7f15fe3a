//! Statistics of one kind of qdisc in the kernel's structure of it: the payload of `TCA_STATS_APP`
//! and of `TCA_XSTATS`.

use softnet_tc::{Xstat, Xstats};

/// A field of a structure.
#[derive(Clone, Copy, Debug)]
pub(super) enum Slot {
    /// The last 32 bits: counters of the kernel come round.
    U32(Xstat),
    U64(Xstat),
    /// 32 bits; what is more is shown as the highest number.
    AtMostU32(Xstat),
    /// A time in microseconds, in 32 bits, and the highest that is shown.
    Micros(Xstat, u32),
    /// A time in microseconds, in 32 bits, as it is.
    WholeMicros(Xstat),
    /// Bytes of what Softnet does not count.
    Zero(usize),
}

/// The structure; all 0 where there are no statistics yet.
pub(super) fn bytes(layout: &[Slot], xstats: Option<&Xstats>) -> Vec<u8> {
    let values: Vec<_> = xstats.into_iter().flat_map(Xstats::values).collect();
    let value = |stat| {
        let found = values.iter().find(|(of, _)| *of == stat);
        found.map_or(0, |&(_, value)| value)
    };
    let at_most = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
    let mut bytes = Vec::new();
    for &slot in layout {
        match slot {
            Slot::U32(stat) => bytes.extend((value(stat) as u32).to_ne_bytes()),
            Slot::U64(stat) => bytes.extend(value(stat).to_ne_bytes()),
            Slot::AtMostU32(stat) => bytes.extend(at_most(value(stat)).to_ne_bytes()),
            Slot::Micros(stat, most) => {
                let micros = super::codel::shown(value(stat));
                bytes.extend(micros.min(most).to_ne_bytes());
            }
            Slot::WholeMicros(stat) => {
                bytes.extend(at_most(value(stat) / 1000).to_ne_bytes());
            }
            Slot::Zero(size) => bytes.resize(bytes.len() + size, 0),
        }
    }
    bytes
}
