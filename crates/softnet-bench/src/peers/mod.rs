//! Packet pools and memory allocators of others.

#[allow(unsafe_code, reason = "allocators are C functions")]
pub(crate) mod allocators;
pub(crate) mod dpdk;
