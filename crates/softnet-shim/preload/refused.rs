//! Calls that would change interfaces of the kernel: they fail with a text, since the program means
//! those of Softnet. In an empty network namespace they would succeed, and what they made would
//! vanish with the program.

use core::ffi::{c_int, c_ulong};

use super::c;

/// `ioctl` requests (`linux/sockios.h`, `linux/if_tun.h`) that make or change an interface or a
/// bridge.
const REFUSED: &[(c_ulong, &str)] = &[
    (0x4004_54ca, "TUNSETIFF"),
    (0x8914, "SIOCSIFFLAGS"),
    (0x8916, "SIOCSIFADDR"),
    (0x8918, "SIOCSIFDSTADDR"),
    (0x891a, "SIOCSIFBRDADDR"),
    (0x891c, "SIOCSIFNETMASK"),
    (0x891e, "SIOCSIFMETRIC"),
    (0x8920, "SIOCSIFMEM"),
    (0x8922, "SIOCSIFMTU"),
    (0x8923, "SIOCSIFNAME"),
    (0x8924, "SIOCSIFHWADDR"),
    (0x8925, "SIOCSIFENCAP"),
    (0x8930, "SIOCSIFSLAVE"),
    (0x8934, "SIOCSIFPFLAGS"),
    (0x8936, "SIOCDIFADDR"),
    (0x8937, "SIOCSIFHWBROADCAST"),
    (0x8941, "SIOCSIFBR"),
    (0x8943, "SIOCSIFTXQLEN"),
    (0x8971, "SIOCSIFMAP"),
    (0x89a0, "SIOCBRADDBR"),
    (0x89a1, "SIOCBRDELBR"),
    (0x89a2, "SIOCBRADDIF"),
    (0x89a3, "SIOCBRDELIF"),
];

/// True if the request is refused; the reason is on standard error then.
pub(crate) fn says(request: c_ulong) -> bool {
    // The kernel reads 32 bits of it; programs that pass an `int` leave the others as they are.
    let request = request & 0xffff_ffff;
    let Some((_, name)) = REFUSED.iter().find(|(number, _)| *number == request) else {
        return false;
    };
    // SAFETY: the name ends with NUL.
    if !unsafe { c::getenv(c"SOFTNET_HOST_NETWORK".as_ptr()) }.is_null() {
        return false;
    }
    for part in [
        "softnet exec: ",
        name,
        ": interfaces are Softnet's here: use `ip link` or its configuration, or --host-network\n",
    ] {
        const STDERR: c_int = 2;
        // SAFETY: the bytes and their length are those of a string.
        unsafe { c::write(STDERR, part.as_ptr().cast(), part.len()) };
    }
    true
}
