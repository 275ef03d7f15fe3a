//! `htb`: classes with a rate of their own that lend to each other what they do not use
//! (tc-htb(8)).

mod class;
mod counters;
mod row;
mod scheduler;
mod spec;
mod turn;

pub use counters::{HtbClassStats, HtbCounters};
pub use spec::{HtbClassSpec, HtbSpec};

#[cfg(all(test, not(miri)))]
mod scheduler_tests;
#[cfg(all(test, not(miri)))]
mod test_world;
