//! Statistics of one kind of qdisc, beside those that every qdisc has: what `tc -s` shows on the
//! lines behind the first two.

use std::sync::Arc;

use softnet::stats::Published;

/// The most statistics that a kind has.
const MAX: usize = 20;

/// Statistics with tc's names. The owner of the queue writes them at the end of a call, where they
/// have changed; any thread may read them, at any rate.
#[derive(Clone, Debug)]
pub struct Xstats {
    names: &'static [&'static str],
    values: Arc<Published<MAX>>,
    /// Those of the same qdisc in other instances of its tree.
    others: Vec<Arc<Published<MAX>>>,
}

/// Of several instances the highest is shown, not the sum.
const HIGHEST: [&str; 7] = [
    "count",
    "lastcount",
    "ldelay",
    "dropping",
    "drop_next",
    "maxpacket",
    "latency",
];
/// The lowest is shown that is not 0.
const NEXT: &str = "next_packet_delay";

/// A statistic of two instances.
fn join(name: &str, a: u64, b: u64) -> u64 {
    if HIGHEST.contains(&name) {
        return a.max(b);
    }
    match (a, b) {
        (1.., 1..) if name == NEXT => a.min(b),
        _ => a.wrapping_add(b),
    }
}

impl Xstats {
    /// All 0.
    pub(super) fn new<const N: usize>(names: &'static [&'static str; N]) -> Xstats {
        const { assert!(N <= MAX, "as many as there is space for") };
        Xstats {
            names,
            values: Arc::default(),
            others: Vec::new(),
        }
    }

    /// Shows another instance's together with these.
    pub(super) fn join(&mut self, other: &Xstats) {
        self.others.push(other.values.clone());
    }

    /// Stores what has changed, in the order of the names.
    #[inline]
    pub(super) fn set<const N: usize>(&self, values: [u64; N]) {
        for (index, value) in values.into_iter().enumerate() {
            if self.values.get_one(index) != value {
                self.values.put(index, value);
            }
        }
    }

    /// The statistics now. Each is whole, but they need not be from the same moment.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        let mut values = self.values.get();
        for other in &self.others {
            let others = self.names.iter().zip(other.get());
            for (value, (name, other)) in values.iter_mut().zip(others) {
                *value = join(name, *value, other);
            }
        }
        self.names.iter().copied().zip(values)
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn instances_are_shown_together() {
        const NAMES: [&str; 4] = ["ecn_mark", "maxpacket", NEXT, "flows"];
        let with = |values| {
            let xstats = Xstats::new(&NAMES);
            xstats.set(values);
            xstats
        };
        let mut shown = with([1, 100, 0, 7]);
        let others = [[2, 300, 50, 1], [4, 200, 40, 1]].map(with);
        others.iter().for_each(|other| shown.join(other));
        let values: Vec<u64> = shown.iter().map(|(_, value)| value).collect();
        assert_eq!(values, [7, 300, 40, 9]);
        // What an instance counts is read when it is shown.
        others[1].set([5, 200, 0, 1]);
        let values: Vec<u64> = shown.iter().map(|(_, value)| value).collect();
        assert_eq!(values, [8, 300, 50, 9]);
    }

    /// Every name that is not summed is one of a kind's.
    #[test]
    fn names_are_those_of_kinds() {
        let pool = softnet::testing::pool(1);
        let env = crate::QdiscEnv::new(&pool);
        let kinds = [
            crate::QdiscSpec::Codel(crate::CodelSpec::default()),
            crate::QdiscSpec::FqCodel(crate::FqCodelSpec::default()),
            crate::QdiscSpec::Fq(crate::FqSpec::default()),
        ];
        let qdiscs = kinds.map(|kind| kind.build(&env).unwrap());
        let names: Vec<&str> = qdiscs
            .iter()
            .flat_map(|qdisc| qdisc.xstats().unwrap().iter())
            .map(|(name, _)| name)
            .collect();
        for name in HIGHEST.iter().chain([&NEXT]) {
            assert!(names.contains(name), "{name}");
        }
    }
}
