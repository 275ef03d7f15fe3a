//! Parameters of `hfsc` and of its classes.

use super::curve::ServiceCurve;
use crate::qdisc::class::ClassSpec;
use crate::qdisc::option::{ClassOption, Form, Unset, options, parameters};
use crate::qdisc::spec::SpecError;

parameters! {
    /// Parameters of `hfsc` (tc-hfsc(8)).
    pub struct HfscSpec {
        /// The minor number of the class for packets that nothing else leads to a class. If that is
        /// no leaf, such packets are dropped.
        pub default: u16 = 0,
    }
}

/// Parameters of a class of `hfsc`: one of the first two curves at least.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HfscClassSpec {
    /// Real-time curve of a leaf: what it gets whatever others get.
    pub rt: Option<ServiceCurve>,
    /// Link-sharing curve: its part of what is left, relative to others at the same class.
    pub ls: Option<ServiceCurve>,
    /// Upper limit of what it gets for link sharing.
    pub ul: Option<ServiceCurve>,
}

impl HfscClassSpec {
    /// The options of a class.
    pub const OPTIONS: &'static [ClassOption] = options! { ClassSpec::Hfsc(s) =>
        /// a curve: what a leaf gets whatever others get. A table with `m1` (a rate), `d` (a time)
        /// and `m2` (the rate from then on), with `m2` alone, or with `umax` (a size), `dmax` (a
        /// time) and `rate`: so much at once within that time
        "rt": Form::Own; unset = Unset::Words("none"); wrong = "1",
        /// a curve: its part of what is left, relative to others below the same class
        "ls": Form::Own; unset = Unset::Words("none; `rt`, if classes are below it"); wrong = "1",
        /// a curve: `rt` and `ls` in one
        "sc": Form::Own; unset = Unset::Words("none"); wrong = "{}",
        /// a curve: the most that it gets for link sharing, with `ls`
        "ul": Form::Own; unset = Unset::Words("none"); wrong = "{ m1 = 1 }",
    };

    /// Checks the parameters.
    pub(super) fn check(&self) -> Result<(), SpecError> {
        let wrong = |parameter, text| Err(SpecError::parameter("hfsc", parameter, text));
        let curves = [("rt", self.rt), ("ls", self.ls), ("ul", self.ul)];
        for (name, curve) in curves {
            if curve.is_some_and(|curve| curve.is_nothing()) {
                return wrong(name, "must have a rate above 0");
            }
        }
        match (self.rt, self.ls) {
            (None, None) => wrong("rt", "or ls, or sc for both, must be given"),
            _ => Ok(()),
        }
    }
}
