//! Parameters of `htb` and of its classes.

use crate::account::LinkCost;
use crate::qdisc::spec::SpecError;

/// Parameters of `htb` (tc-htb(8)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HtbSpec {
    /// The minor number of the class for packets that nothing else leads to a class. 0, and a
    /// class that does not exist or has classes below it: such packets are sent directly.
    pub default: u16,
    /// A class's quantum is its rate divided by this, if it is given none.
    pub r2q: u32,
    /// Frames that may wait for being sent directly; the device's `txqueuelen` if not given.
    pub direct_qlen: Option<u32>,
}

impl Default for HtbSpec {
    fn default() -> HtbSpec {
        HtbSpec {
            default: 0,
            r2q: 10,
            direct_qlen: None,
        }
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
    pub prio: u8,
    /// Bytes that a leaf sends before it is the turn of the next one; `rate / r2q`, but 1000 to
    /// 200,000, if not given.
    pub quantum: Option<u32>,
    /// What a packet costs beyond its length.
    pub link: LinkCost,
}

impl HtbClassSpec {
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
        self.prio.min(7)
    }

    /// The quantum of a leaf.
    pub(super) fn quantum(&self, r2q: u32) -> i32 {
        let default = || (self.rate / u64::from(r2q.max(1))).clamp(1000, 200_000) as u32;
        let quantum = self.quantum.filter(|&q| q > 0).unwrap_or_else(default);
        i32::try_from(quantum).unwrap_or(i32::MAX)
    }

    /// Checks the parameters.
    pub(super) fn check(&self) -> Result<(), SpecError> {
        const MAX_RATE: u64 = 1_000_000_000_000;
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

#[cfg(all(test, not(miri)))]
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
