//! The filter that says which calls wait for the supervisor.

use std::io;

use libc::{sock_filter, sock_fprog};

const LD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const JEQ: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const JGE: u16 = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;
const RET: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

/// Offsets in `struct seccomp_data`.
const NR: u32 = 0;
const ARCH: u32 = 4;
/// The low half of an argument, on a little-endian machine.
const fn argument(number: u32) -> u32 {
    16 + 8 * number
}

#[cfg(target_arch = "x86_64")]
const NATIVE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const NATIVE: u32 = 0xc000_00b7;
/// Calls of the x32 ABI have this bit.
const X32: u32 = 0x4000_0000;

const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;
const NOTIFY: u32 = libc::SECCOMP_RET_USER_NOTIF;
const NONE: u32 = libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32;

/// Requests of interfaces (`linux/sockios.h`).
pub(super) const SIOC: std::ops::Range<u32> = 0x8900..0x8a00;
pub(super) const TUNSETIFF: u32 = 0x4004_54ca;

fn statement(code: u16, k: u32) -> sock_filter {
    sock_filter {
        code,
        jt: 0,
        jf: 0,
        k,
    }
}

fn jump(code: u16, k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { code, jt, jf, k }
}

/// The filter.
pub(super) fn program() -> Vec<sock_filter> {
    let mut program = vec![
        statement(LD, ARCH),
        // Of another machine: it finds an empty namespace.
        jump(JEQ, NATIVE, 1, 0),
        statement(RET, ALLOW),
        statement(LD, NR),
        jump(JGE, X32, 0, 1),
        statement(RET, NONE),
    ];
    let when = |program: &mut Vec<sock_filter>, call: i64, body: &[sock_filter]| {
        program.push(jump(JEQ, call as u32, 0, body.len() as u8));
        program.extend_from_slice(body);
    };
    when(
        &mut program,
        libc::SYS_socket,
        &[
            statement(LD, argument(0)),
            jump(JEQ, libc::AF_NETLINK as u32, 1, 0),
            statement(RET, ALLOW),
            statement(LD, argument(2)),
            jump(JEQ, libc::NETLINK_ROUTE as u32, 1, 0),
            statement(RET, ALLOW),
            statement(RET, NOTIFY),
        ],
    );
    when(
        &mut program,
        libc::SYS_ioctl,
        &[
            statement(LD, argument(1)),
            jump(JEQ, TUNSETIFF, 3, 0),
            jump(JGE, SIOC.start, 0, 1),
            jump(JGE, SIOC.end, 0, 1),
            statement(RET, ALLOW),
            statement(RET, NOTIFY),
        ],
    );
    // One that asks for no name needs no answer.
    when(
        &mut program,
        libc::SYS_recvfrom,
        &[
            statement(LD, argument(4)),
            jump(JEQ, 0, 0, 3),
            statement(LD, argument(4) + 4),
            jump(JEQ, 0, 0, 1),
            statement(RET, ALLOW),
            statement(RET, NOTIFY),
        ],
    );
    for call in [
        libc::SYS_bind,
        libc::SYS_connect,
        libc::SYS_getsockname,
        libc::SYS_getpeername,
        libc::SYS_getsockopt,
        libc::SYS_setsockopt,
        libc::SYS_recvmsg,
        libc::SYS_recvmmsg,
    ] {
        when(&mut program, call, &[statement(RET, NOTIFY)]);
    }
    program.push(statement(RET, ALLOW));
    program
}

/// Puts this process, and what it becomes and starts, below the filter. Returns the descriptor of
/// its notifications. To be called between fork and exec.
pub(super) fn install(program: &[sock_filter]) -> io::Result<i32> {
    let program = sock_fprog {
        len: program.len() as u16,
        filter: program.as_ptr().cast_mut(),
    };
    // SAFETY: the pointers are to what the kernel reads.
    let fd = unsafe {
        super::checked(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM).into())?;
        super::checked(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0).into())?;
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_NEW_LISTENER,
            &raw const program,
        )
    };
    Ok(super::checked(fd)? as i32)
}
