//! Questions of tests, here and in other crates, to a pool; the checks of the feature `check`, and
//! the controls of experiments. Nothing of it is in the product.

#[cfg(feature = "check")]
pub(super) mod check;
#[cfg(any(test, feature = "controls"))]
pub(super) mod controls;
#[cfg(any(test, feature = "testing"))]
mod threads;

#[cfg(test)]
mod kit;

#[cfg(test)]
pub(super) use kit::*;
#[cfg(any(test, feature = "testing"))]
pub use threads::ThreadStats;
