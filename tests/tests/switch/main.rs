//! Hosts and virtual machines on a switch, one in each test.

mod coming_and_going;
mod delivery;
mod machine_limits;
mod merging;
mod offload_attack;
mod qdisc_kinds;
mod trees;
