//! What others made, to compare with: where its programs are, which version they are, pools and
//! allocators.

#[allow(unsafe_code, reason = "allocators are C functions")]
pub(crate) mod allocators;
pub(crate) mod dpdk;
pub(crate) mod hugepages;
pub(crate) mod place;
pub(crate) mod version;
