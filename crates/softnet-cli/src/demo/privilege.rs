//! Gets what the demo needs: network namespaces and TAP devices, as root or in a user namespace.

use rustix::thread::{CapabilitySet, capabilities};
use softnet_io::become_root_in_userns;

use crate::failure::chain;

/// Makes sure that this process can make network namespaces. Must come before any thread is
/// started.
///
/// The error says what is missing.
pub(super) fn acquire() -> Result<(), String> {
    let needed = CapabilitySet::SYS_ADMIN | CapabilitySet::NET_ADMIN;
    if capabilities(None).is_ok_and(|own| own.effective.contains(needed)) {
        return Ok(());
    }
    become_root_in_userns().map_err(|error| {
        format!(
            "the demo needs network namespaces and TAP devices, as root or through a user \
             namespace: {}",
            chain(&error)
        )
    })
}
