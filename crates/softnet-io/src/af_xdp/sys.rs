//! System calls of XDP sockets that have no safe wrapper, bpf(2) among them, each as a safe
//! function.

#![allow(unsafe_code, reason = "bpf(2) and some options have no safe wrapper")]

use std::ffi::{c_int, c_long};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

use rustix::io::Errno;
use rustix::net::netdevice::InlinedName;

use crate::tap::sys::ethtool;

/// Commands and constants of `linux/bpf.h` and `linux/if_link.h`.
const MAP_CREATE: c_int = 0;
const MAP_UPDATE_ELEM: c_int = 2;
const PROG_LOAD: c_int = 5;
const LINK_CREATE: c_int = 28;
const MAP_TYPE_XSKMAP: u32 = 17;
const PROG_TYPE_XDP: u32 = 6;
const ATTACH_XDP: u32 = 37;

/// Ways to attach a program: in the driver, or where frames are socket buffers already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Native = 1 << 2,
    Generic = 1 << 1,
}

fn last_error() -> Errno {
    Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::INVAL)
}

/// Calls bpf(2) with the first fields of `union bpf_attr`; the kernel takes the others as zero.
///
/// # Safety
/// `T` has the layout of those fields, without padding that is not zero, and its pointers lead to
/// what the command reads.
unsafe fn bpf<T>(command: c_int, attributes: &T) -> Result<c_long, Errno> {
    // SAFETY: the kernel reads as many bytes as `T` has; the caller answers for pointers in it.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            ptr::from_ref(attributes),
            size_of::<T>(),
        )
    };
    if result < 0 {
        Err(last_error())
    } else {
        Ok(result)
    }
}

/// As [`bpf`], of a command that makes a file.
///
/// # Safety
/// As for [`bpf`]; the command returns a new descriptor.
unsafe fn bpf_file<T>(command: c_int, attributes: &T) -> Result<OwnedFd, Errno> {
    // SAFETY: by the caller's promise; a new descriptor has no other owner.
    unsafe {
        let file = bpf(command, attributes)?;
        Ok(OwnedFd::from_raw_fd(file as RawFd))
    }
}

/// A map of sockets by receive queue (`BPF_MAP_TYPE_XSKMAP`).
pub(super) fn socket_map(sockets: &[BorrowedFd<'_>]) -> Result<OwnedFd, Errno> {
    #[repr(C)]
    struct Create {
        map_type: u32,
        key_size: u32,
        value_size: u32,
        max_entries: u32,
        map_flags: u32,
    }
    #[repr(C)]
    struct Update {
        map_fd: u32,
        zero: u32,
        key: u64,
        value: u64,
        flags: u64,
    }
    let create = Create {
        map_type: MAP_TYPE_XSKMAP,
        key_size: 4,
        value_size: 4,
        max_entries: sockets.len() as u32,
        map_flags: 0,
    };
    // SAFETY: the fields of BPF_MAP_CREATE, which has no pointers.
    let map = unsafe { bpf_file(MAP_CREATE, &create)? };
    for (queue, socket) in (0_u32..).zip(sockets) {
        let socket = socket.as_raw_fd();
        let update = Update {
            map_fd: map.as_raw_fd() as u32,
            zero: 0,
            key: ptr::from_ref(&queue).expose_provenance() as u64,
            value: ptr::from_ref(&socket).expose_provenance() as u64,
            flags: 0,
        };
        // SAFETY: the fields of BPF_MAP_UPDATE_ELEM; key and value are four bytes each, which live
        // until the call has ended.
        unsafe { bpf(MAP_UPDATE_ELEM, &update)? };
    }
    Ok(map)
}

/// `struct bpf_insn`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Instruction {
    code: u8,
    registers: u8,
    offset: i16,
    immediate: i32,
}

const fn instruction(code: u8, to: u8, from: u8, offset: i16, immediate: i32) -> Instruction {
    // Two fields of four bits, in the machine's order.
    let registers = if cfg!(target_endian = "little") {
        from << 4 | to
    } else {
        to << 4 | from
    };
    Instruction {
        code,
        registers,
        offset,
        immediate,
    }
}

/// Loads the program: `return bpf_redirect_map(&map, context->rx_queue_index, XDP_PASS)`. A frame
/// goes to the socket of its queue, and to the kernel if there is none.
pub(super) fn program(map: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    const LOAD_WORD: u8 = 0x61;
    const LOAD_MAP: u8 = 0x18;
    const MOVE: u8 = 0xb7;
    const CALL: u8 = 0x85;
    const EXIT: u8 = 0x95;
    const PSEUDO_MAP_FD: u8 = 1;
    /// `offsetof(struct xdp_md, rx_queue_index)`.
    const QUEUE: i16 = 16;
    const XDP_PASS: i32 = 2;
    const REDIRECT_MAP: i32 = 51;
    #[repr(C)]
    struct Load {
        program_type: u32,
        count: u32,
        instructions: u64,
        license: u64,
        log_level: u32,
        log_size: u32,
        log: u64,
        kernel_version: u32,
        flags: u32,
        name: [u8; 16],
        interface: u32,
        expected_attach_type: u32,
    }
    let instructions = [
        instruction(LOAD_WORD, 2, 1, QUEUE, 0),
        instruction(LOAD_MAP, 1, PSEUDO_MAP_FD, 0, map.as_raw_fd()),
        instruction(0, 0, 0, 0, 0),
        instruction(MOVE, 3, 0, 0, XDP_PASS),
        instruction(CALL, 0, 0, 0, REDIRECT_MAP),
        instruction(EXIT, 0, 0, 0, 0),
    ];
    let license = c"MIT";
    let load = Load {
        program_type: PROG_TYPE_XDP,
        count: instructions.len() as u32,
        instructions: instructions.as_ptr().expose_provenance() as u64,
        license: license.as_ptr().expose_provenance() as u64,
        log_level: 0,
        log_size: 0,
        log: 0,
        kernel_version: 0,
        flags: 0,
        name: *b"softnet\0\0\0\0\0\0\0\0\0",
        interface: 0,
        expected_attach_type: ATTACH_XDP,
    };
    // SAFETY: the first fields of BPF_PROG_LOAD; instructions, as many as it says, and the license,
    // which ends with a zero, live until the call has ended.
    unsafe { bpf_file(PROG_LOAD, &load) }
}

/// Attaches a program to an interface of the calling thread's namespace, as long as the file is
/// open.
pub(super) fn attach(program: BorrowedFd<'_>, index: u32, mode: Mode) -> Result<OwnedFd, Errno> {
    #[repr(C)]
    struct Link {
        program: u32,
        interface: u32,
        attach_type: u32,
        flags: u32,
    }
    let link = Link {
        program: program.as_raw_fd() as u32,
        interface: index,
        attach_type: ATTACH_XDP,
        flags: mode as u32,
    };
    // SAFETY: the fields of BPF_LINK_CREATE, which has no pointers.
    unsafe { bpf_file(LINK_CREATE, &link) }
}

/// Lets so many bytes wait to be sent, if the process may (`SO_SNDBUFFORCE`).
pub(super) fn set_send_buffer(socket: BorrowedFd<'_>, bytes: c_int) -> Result<(), Errno> {
    // SAFETY: the kernel reads an int.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_SNDBUFFORCE,
            ptr::from_ref(&bytes).cast(),
            size_of::<c_int>() as libc::socklen_t,
        )
    };
    if done == 0 { Ok(()) } else { Err(last_error()) }
}

/// Has the kernel send what is in the transmit ring: in copy mode at most 32 frames, before it
/// returns.
pub(super) fn send(socket: BorrowedFd<'_>) -> Result<(), Errno> {
    // SAFETY: no byte of no buffer is read, and no address.
    let sent = unsafe {
        libc::sendto(
            socket.as_raw_fd(),
            ptr::null(),
            0,
            libc::MSG_DONTWAIT,
            ptr::null(),
            0,
        )
    };
    if sent < 0 { Err(last_error()) } else { Ok(()) }
}

/// Has the kernel look at the fill ring.
pub(super) fn receive(socket: BorrowedFd<'_>) {
    // SAFETY: no byte of no buffer is written, and no address.
    // Nothing can be done about an error: what comes then is counted by the kernel.
    let _ = unsafe {
        libc::recvfrom(
            socket.as_raw_fd(),
            ptr::null_mut(),
            0,
            libc::MSG_DONTWAIT,
            ptr::null_mut(),
            ptr::null_mut(),
        )
    };
}

/// Receive queues that an interface uses; `None` if it does not tell.
pub(super) fn receive_queues(socket: BorrowedFd<'_>, name: &InlinedName) -> Option<u32> {
    /// `ETHTOOL_GCHANNELS`; its structure has eight words more, the sixth of which is the number of
    /// receive queues alone, the last that of those for both directions.
    const GET_CHANNELS: u32 = 0x3c;
    let [_, _, _, _, _, rx, _, _, both] =
        ethtool(socket, name, [GET_CHANNELS, 0, 0, 0, 0, 0, 0, 0, 0]).ok()?;
    rx.checked_add(both).filter(|&queues| queues > 0)
}

/// True if an interface takes VLAN tags off the frames that it receives.
pub(super) fn takes_tags_off(socket: BorrowedFd<'_>, name: &InlinedName) -> bool {
    const GET_FLAGS: u32 = 0x25;
    /// `ETH_FLAG_RXVLAN`.
    const RX_VLAN: u32 = 1 << 8;
    ethtool(socket, name, [GET_FLAGS, 0]).is_ok_and(|[_, flags]| flags & RX_VLAN != 0)
}
