//! Parameters of `red`.

use super::law::{RedCurve, STAB};
use crate::qdisc::kind::QdiscSpec;
use crate::qdisc::option::{Form, QdiscOption, Unset, options, parameters};
use crate::qdisc::spec::SpecError;

parameters! {
    /// Parameters of `red`, in the units of the kernel's interface.
    pub struct RedSpec {
        /// Bytes that may wait. Not used if the class is given a qdisc of its own.
        pub limit: u32 = 0,
        /// Thresholds and weights.
        pub curve: RedCurve = RedCurve::default(),
        /// For each idle time, how many times the average halves in it.
        pub stab: Box<[u8; STAB]> = Box::new([0; STAB]),
        /// Marks ECN-capable packets instead of dropping them.
        pub ecn: bool = false,
        /// Drops at `max` even what could be marked.
        pub harddrop: bool = false,
        /// Changes the probability every half second, so that the average stays in the middle
        /// between the thresholds.
        pub adaptive: bool = false,
        /// Lets packets pass that cannot be marked. It needs `ecn`.
        pub nodrop: bool = false,
        /// Flags without a meaning, which are only shown.
        pub user_flags: u8 = 0,
    }
}

/// The options of `red`.
pub(super) const OPTIONS: &[QdiscOption] = options! { QdiscSpec::Red(s) =>
    /// a size; bytes that may wait, above `max`
    "limit": Form::Size => s.limit;
        unset = Unset::Required("how many bytes may wait, like \"400k\"", "400000");
        wrong = "\"x\"",
    /// a size; below this average length no packet is marked or dropped
    "min": Form::Own; unset = Unset::Words("a third of `max`"); wrong = "\"x\"",
    /// a size; from this average length on every packet is
    "max": Form::Own; unset = Unset::Words("a quarter of `limit`"); wrong = "\"x\"",
    /// bytes of the average packet, for `burst` and idle times
    "avpkt": Form::Own; unset = Unset::Words("`1000`"); wrong = "0",
    /// packets that may come at once while the average is at `min`: the weight of a packet in the
    /// average follows from it
    "burst": Form::Own; unset = Unset::Words("(2 * `min` + `max`) / (3 * `avpkt`)"); wrong = "0",
    /// probability at `max`, like `"0.02"`
    "probability": Form::Own; unset = Unset::Words("`\"0.02\"`"); wrong = "\"2\"",
    /// a rate; that of the link, for how the average falls while nothing comes
    "bandwidth": Form::Own; unset = Unset::Words("`\"10mbit\"`"); wrong = "\"x\"",
    /// mark ECN-capable packets instead of dropping them
    "ecn": Form::Flag => s.ecn,
    /// with `ecn`: drop at `max` all the same
    "harddrop": Form::Flag => s.harddrop,
    /// change the probability so that the average stays in the middle (ARED)
    "adaptive": Form::Flag => s.adaptive,
    /// with `ecn`: let packets pass that cannot be marked
    "nodrop": Form::Flag => s.nodrop; wrong = "true",
    /// weight of a packet in the average, as minus a power of 2; instead of `burst`
    "wlog": Form::Own; unset = Unset::Words("from `burst`"); wrong = "32",
    /// power of 2 of the probability for each byte; what `tc` gave
    "plog": Form::Own; unset = Unset::Words("from `probability`"); wrong = "256",
    /// table of idle times that `tc` gave, instead of `bandwidth`: the power of 2 of a cell in
    /// microseconds, and how many times the average halves in 0 to 255 cells, as
    /// `"HALVINGSxCELLS"`
    "idle_table": Form::Own; unset = Unset::Words("from `bandwidth`"); wrong = "\"1\"",
};

impl RedSpec {
    pub(super) fn check(&self) -> Result<(), SpecError> {
        let wrong =
            |parameter, reason: &'static str| Err(SpecError::parameter("red", parameter, reason));
        if let Some((parameter, reason)) = self.curve.problem() {
            return wrong(parameter, reason);
        }
        if self.stab.iter().any(|&shift| shift >= 32) {
            return wrong("idle_table", "must halve the average less than 32 times");
        }
        if self.nodrop && !self.ecn {
            return wrong("nodrop", "needs ecn");
        }
        Ok(())
    }
}
