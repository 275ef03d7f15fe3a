//! Peers to compare with: places and versions of their programs, pools and allocators.

#[allow(unsafe_code, reason = "allocators are C functions")]
pub(crate) mod allocators;
pub(crate) mod dpdk;
pub(crate) mod hugepages;
pub(crate) use softnet_testbed::place;
pub(crate) mod version;
