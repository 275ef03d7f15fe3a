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
}

impl Xstats {
    /// All 0.
    pub(super) fn new<const N: usize>(names: &'static [&'static str; N]) -> Xstats {
        const { assert!(N <= MAX, "as many as there is space for") };
        Xstats {
            names,
            values: Arc::default(),
        }
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
        let values = self.values.get();
        self.names.iter().copied().zip(values)
    }
}
