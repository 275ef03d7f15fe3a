//! The preload library, as bytes.
//!
//! `softnet exec` lays it down and runs a program with it (`LD_PRELOAD`). In that program it sends
//! AF_NETLINK sockets for NETLINK_ROUTE to the daemon, and refuses `ioctl` requests that would
//! change the kernel's interfaces; every other socket stays as it is. It is
//! compiled from `preload/` by the build script, has no state of its own and needs nothing but the
//! C library.
//!
//! It is the one part of Softnet that runs in other people's programs, and made of `unsafe` code:
//! it implements C functions.

#![deny(unsafe_code)]

// Compiled by the build script alone; here for the lints.
#[cfg(clippy)]
#[path = "../preload/modules.rs"]
#[allow(unsafe_code, dead_code, reason = "another crate's code")]
mod modules;

/// The shared object, or why this build has none.
pub const LIBRARY: Result<&[u8], &str> = include!(concat!(env!("OUT_DIR"), "/library.rs"));

/// The variable that tells the library where the daemon listens: an absolute path.
pub const SOCKET_VARIABLE: &str = "SOFTNET_SOCKET";

/// The variable that, if set, lets requests through that change the kernel's interfaces.
pub const HOST_NETWORK_VARIABLE: &str = "SOFTNET_HOST_NETWORK";
