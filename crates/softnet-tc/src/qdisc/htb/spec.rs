//! Parameters of `htb` and of its classes.

use crate::account::LinkCost;
use crate::qdisc::class::ClassSpec;
use crate::qdisc::option::{ClassOption, Form, Unset, options, parameters};
use crate::qdisc::spec::SpecError;
use crate::units::MAX_RATE;

parameters! {
    /// Parameters of `htb` (tc-htb(8)).
    pub struct HtbSpec {
        /// The minor number of the class for packets that nothing else leads to a class. 0, and a
        /// class that does not exist or has classes below it: such packets are sent directly.
        pub default: u16 = 0,
        /// A class's quantum is its rate divided by this, if it is given none.
        pub r2q: u32 = 10,
        /// Frames that may wait for being sent directly; the device's `txqueuelen` if not given.
        pub direct_qlen: Option<u32> = None,
    }
}

/// Parameters of a class of `htb`, in the units of the kernel's interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HtbClassSpec {
    /// Bytes per second that it may send by itself.
    pub rate: u64,
    /// Bytes per second that it may send with what it borrows.
    pub ceil: u64,
    /// Bytes that it may send at once by itself, at most 4 GiB.
    pub burst: u64,
    /// Bytes that it may send at once, at most 4 GiB.
    pub cburst: u64,
    /// `burst` and `cburst` as a client of the kernel's interface gave them, in ticks of 64 ns; at
    /// low rates a byte takes many. This is only shown.
    pub ticks: Option<[u32; 2]>,
    /// 0 is served first; above 7 is as 7. Used with leaves only.
    pub prio: u32,
    /// Bytes that a leaf sends before it is the turn of the next one; `rate / r2q`, but 1000 to
    /// 200,000, if not given.
    pub quantum: Option<u32>,
    /// Cost of a packet beyond its length.
    pub link: LinkCost,
}

impl HtbClassSpec {
    /// The options of a class.
    pub const OPTIONS: &'static [ClassOption] = options! { ClassSpec::Htb(s) =>
        /// a rate that it may send with tokens of its own
        "rate": Form::Rate => s.rate;
            unset = Unset::Required("the class's own rate, like \"10mbit\"", "\"1mbit\""),
        /// a rate; the most that it sends, with what it borrows
        "ceil": Form::Rate => s.ceil; unset = Unset::Words("`\"1mbit\"`: `rate`"); wrong = "0",
        /// a size; the bucket of `rate`, which it may send at once
        "burst": Form::Size => s.burst; wrong = "\"5g\"";
            unset = Unset::Words("`1600`, plus what `rate` sends in a nanosecond"),
        /// a size; the bucket of `ceil`
        "cburst": Form::Size => s.cburst; wrong = "\"5g\"";
            unset = Unset::Words("`1600`, plus what `ceil` sends in a nanosecond"),
        /// among leaves that send with tokens of the same level, the lowest is served first; above
        /// 7 is as 7. An inner class's is not used
        "prio": Form::Number("a number from 0 on", 0, u32::MAX as u64) => s.prio,
        /// a size; bytes that a leaf sends before it is the next one's turn
        "quantum": Form::Size => s.quantum; wrong = "\"x\"";
            unset = Unset::Words("the `rate` divided by `r2q`, 1000 to 200000"),
        /// as of `tbf`
        "overhead": Form::Own; unset = Unset::Words("`0`"); wrong = "-1",
        /// as of `tbf`
        "mpu": Form::Own; unset = Unset::Words("`0`"); wrong = "-1",
        /// as of `tbf`
        "linklayer": Form::Own; unset = Unset::Words("`\"ethernet\"`"); wrong = "\"dsl\"",
    };

    /// A class of this rate, with tc's defaults: it does not borrow, and the bursts are one
    /// packet of 1600 bytes and what is sent in a nanosecond.
    pub fn new(rate: u64) -> HtbClassSpec {
        HtbClassSpec {
            rate,
            ceil: rate,
            burst: HtbClassSpec::default_burst(rate),
            cburst: HtbClassSpec::default_burst(rate),
            ticks: None,
            prio: 0,
            quantum: None,
            link: LinkCost::default(),
        }
    }

    /// The burst, in bytes, that tc chooses for a rate.
    pub fn default_burst(rate: u64) -> u64 {
        1600 + rate / 1_000_000_000
    }

    /// The priority of a leaf.
    pub(super) fn prio(&self) -> u8 {
        self.prio.min(7) as u8
    }

    /// The quantum of a leaf.
    pub(super) fn quantum(&self, r2q: u32) -> i32 {
        let default = || (self.rate / u64::from(r2q.max(1))).clamp(1000, 200_000) as u32;
        let quantum = self.quantum.filter(|&q| q > 0).unwrap_or_else(default);
        i32::try_from(quantum).unwrap_or(i32::MAX)
    }

    /// Checks the parameters.
    pub(super) fn check(&self) -> Result<(), SpecError> {
        let rates = 1..=MAX_RATE;
        let wrong = |parameter, text| Err(SpecError::parameter("htb", parameter, text));
        if !rates.contains(&self.rate) {
            return wrong("rate", "must be between 1 byte/s and 1 Tbyte/s");
        }
        if !rates.contains(&self.ceil) {
            return wrong("ceil", "must be between 1 byte/s and 1 Tbyte/s");
        }
        if self.burst > u32::MAX.into() {
            return wrong("burst", "must be at most 4 GiB");
        }
        if self.cburst > u32::MAX.into() {
            return wrong("cburst", "must be at most 4 GiB");
        }
        Ok(())
    }
}

#[cfg(all(test, not(any(loom, miri))))]
mod tests {
    use super::*;

    #[test]
    fn impossible_parameters_are_refused() {
        let good = HtbClassSpec::new(1000);
        let cases = [
            (
                "rate",
                HtbClassSpec {
                    rate: 0,
                    ..good.clone()
                },
            ),
            (
                "rate",
                HtbClassSpec {
                    rate: u64::MAX,
                    ..good.clone()
                },
            ),
            (
                "ceil",
                HtbClassSpec {
                    ceil: 0,
                    ..good.clone()
                },
            ),
            (
                "burst",
                HtbClassSpec {
                    burst: 1 << 32,
                    ..good.clone()
                },
            ),
            (
                "cburst",
                HtbClassSpec {
                    cburst: 1 << 32,
                    ..good.clone()
                },
            ),
        ];
        for (parameter, class) in cases {
            let text = class.check().unwrap_err().to_string();
            assert!(text.contains("htb") && text.contains(parameter), "{text}");
        }
    }

    #[test]
    fn the_largest_and_least_parameters_are_taken() {
        for (rate, burst) in [(1, 0), (1_000_000_000_000, u32::MAX.into())] {
            let class = HtbClassSpec {
                burst,
                cburst: burst,
                ..HtbClassSpec::new(rate)
            };
            assert_eq!(class.check(), Ok(()));
        }
        let above = HtbClassSpec::new(1_000_000_000_001);
        assert!(above.check().is_err());
    }

    /// The default quantum is bounded.
    #[test]
    fn a_quantum_is_chosen() {
        for (rate, quantum, expected) in [
            (1000, None, 1000),
            (50_000, None, 5000),
            (1_000_000_000, None, 200_000),
            (1000, Some(64), 64),
            (1000, Some(u32::MAX), i32::MAX),
            (1000, Some(0), 1000),
        ] {
            let spec = HtbClassSpec {
                quantum,
                ..HtbClassSpec::new(rate)
            };
            assert_eq!(spec.quantum(10), expected);
        }
        assert_eq!(HtbClassSpec::new(50_000).quantum(0), 50_000);
    }
}
