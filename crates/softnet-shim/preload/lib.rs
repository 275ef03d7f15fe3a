//! The preload library. `softnet exec` puts it in front of a program's C library; there it sends
//! NETLINK_ROUTE sockets to Softnet's daemon.
//!
//! It defines C functions ([`exports`](modules::exports)) of the same names, which pass every
//! other socket on to the C library. What they do for a redirected one is in
//! [`route`](modules::route) and [`message`](modules::message).

#![no_std]

mod modules;

/// Nothing here panics; a check that the compiler leaves in ends the program.
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    modules::c::abort()
}
