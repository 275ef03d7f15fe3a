//! Questions of tests, here and in other crates, to a pool; and the checks of the feature `check`.

#[cfg(feature = "check")]
pub(super) mod check;
#[cfg(any(test, feature = "testing"))]
mod threads;

#[cfg(test)]
mod kit;

#[cfg(test)]
pub(super) use kit::*;
#[cfg(any(test, feature = "testing"))]
pub use threads::ThreadStats;
