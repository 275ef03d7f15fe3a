//! The statistics that only classes of one kind have: of `htb`, `drr`, `qfq` or `hfsc`.

use softnet::stats::Published;

/// Nanoseconds of the ticks in which tc shows tokens.
const TICK: i128 = 64;

/// Statistics that only a class of `htb` has, as `tc -s class` shows them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HtbClassStats {
    /// Frames that were sent with tokens of this class: its own ones, and those of classes below.
    pub lended: u64,
    /// Frames that were sent with tokens of a class above.
    pub borrowed: u64,
    /// Times that the class reached its ceil.
    pub overlimits: u64,
    /// Tokens for `rate`, as the time in which they come, in ticks of 64 ns; negative if the
    /// class is in debt. As of the last packet. At most 32 bits, as in the kernel's interface.
    pub tokens: i32,
    /// As `tokens`, for `ceil`.
    pub ctokens: i32,
}

impl HtbClassStats {
    /// Sums of the same class in two instances of its tree. Tokens are those of the instance that
    /// has the fewest.
    pub(crate) fn join(self, other: HtbClassStats) -> HtbClassStats {
        HtbClassStats {
            lended: self.lended.wrapping_add(other.lended),
            borrowed: self.borrowed.wrapping_add(other.borrowed),
            overlimits: self.overlimits.wrapping_add(other.overlimits),
            tokens: self.tokens.min(other.tokens),
            ctokens: self.ctokens.min(other.ctokens),
        }
    }
}

/// Statistics that only a class of `drr`, `qfq` or `hfsc` has, as `tc -s class` shows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnStats {
    /// A class of `drr`.
    Drr {
        /// Bytes that it may still send in its turn; 0 if nothing is queued.
        deficit: u64,
    },
    /// A class of `qfq`.
    Qfq {
        /// Bytes of the longest packet so far, or its `maxpkt` if that is more.
        maxpkt: u64,
    },
    /// A class of `hfsc`.
    Hfsc {
        /// Bytes that it and the classes below it have sent.
        work: u64,
        /// Bytes that it has sent because of its real-time curve.
        rtwork: u64,
        /// Times that it became active.
        period: u64,
        /// 0 for a leaf; for others one more than the highest level below.
        level: u64,
    },
}

impl OwnStats {
    /// Counters of the same class in two instances of its tree.
    pub(crate) fn join(self, other: OwnStats) -> OwnStats {
        match (self, other) {
            (OwnStats::Drr { deficit: a }, OwnStats::Drr { deficit: b }) => {
                OwnStats::Drr { deficit: a.max(b) }
            }
            (OwnStats::Qfq { maxpkt: a }, OwnStats::Qfq { maxpkt: b }) => {
                OwnStats::Qfq { maxpkt: a.max(b) }
            }
            // Of `hfsc` there is one instance.
            (own, _) => own,
        }
    }
}

/// The statistics of a class beyond those of its packets. The owner of the queue writes them;
/// any thread may read them, at any rate. The kind says what is in the words.
#[derive(Debug, Default)]
pub(crate) struct OwnCounters(Published<5>);

const LENDED: usize = 0;
const BORROWED: usize = 1;
const OVERLIMITS: usize = 2;
const TOKENS: usize = 3;
const CEIL_TOKENS: usize = 4;

impl OwnCounters {
    /// The words now. Each is whole, but they need not be from the same moment.
    pub(crate) fn words(&self) -> [u64; 5] {
        self.0.get()
    }

    /// Stores a word.
    #[inline]
    pub(crate) fn put(&self, at: usize, value: u64) {
        self.0.put(at, value);
    }

    /// The statistics now, of a class of `htb` with these rates in bytes a second. Each is whole,
    /// but they need not be from the same moment.
    pub(crate) fn htb(&self, rate: u64, ceil_rate: u64) -> HtbClassStats {
        let [lended, borrowed, overlimits, tokens, ceil] = self.0.get();
        let ticks = |tokens: u64, rate: u64| {
            let nanos = i128::from(tokens.cast_signed()) / i128::from(rate.max(1));
            let ticks = nanos.div_euclid(TICK);
            ticks.clamp(i32::MIN.into(), i32::MAX.into()) as i32
        };
        HtbClassStats {
            lended,
            borrowed,
            overlimits,
            tokens: ticks(tokens, rate),
            ctokens: ticks(ceil, ceil_rate),
        }
    }

    #[inline]
    pub(crate) fn count_sent(&self, lends: bool, borrows: bool, frames: u64) {
        if lends {
            self.0.add(LENDED, frames);
        } else if borrows {
            self.0.add(BORROWED, frames);
        }
    }

    pub(crate) fn count_overlimit(&self) {
        self.0.add(OVERLIMITS, 1);
    }

    #[inline]
    pub(crate) fn set_tokens(&self, (tokens, ceil): (i64, i64)) {
        self.0.put(TOKENS, tokens.cast_unsigned());
        self.0.put(CEIL_TOKENS, ceil.cast_unsigned());
    }
}
