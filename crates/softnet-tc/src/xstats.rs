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
