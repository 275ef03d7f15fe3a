//! Older designs that Softnet is compared with.

#[allow(
    unsafe_code,
    reason = "it hands out the buffers of one block of memory"
)]
pub(crate) mod depot;
