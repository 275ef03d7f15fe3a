//! The TUN/TAP driver's ioctls (`linux/if_tun.h`), those of interfaces (`linux/sockios.h`), and a
//! socket's filter, each as a safe function.

#![allow(unsafe_code, reason = "ioctls and a socket option are typed by hand")]

use std::ffi::c_int;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::ioctl::{IntegerSetter, Opcode, Setter, Updater, ioctl, opcode};
use rustix::net::netdevice::InlinedName;

use crate::userns::TUN;

/// Longest interface name, without the final zero.
pub(super) const NAME_MAX: usize = libc::IFNAMSIZ - 1;

/// True if an interface can have this name, which may end in `%d`.
pub(super) fn is_name(name: &str) -> bool {
    let forbidden = |b: u8| b.is_ascii_whitespace() || matches!(b, b'/' | b':' | 0);
    let fits = !name.is_empty() && name.len() <= NAME_MAX;
    fits && !name.bytes().any(forbidden) && name != "." && name != ".."
}

/// Offloads that a reader asks for (`TUNSETOFFLOAD`).
pub(super) mod offload {
    /// Frames with a missing checksum.
    pub(crate) const CSUM: u32 = 0x01;
    /// Large TCP frames over IPv4.
    pub(crate) const TSO4: u32 = 0x02;
    /// Large TCP frames over IPv6.
    pub(crate) const TSO6: u32 = 0x04;
    /// Large TCP frames with CWR set.
    pub(crate) const TSO_ECN: u32 = 0x08;
    /// Large UDP frames over IPv4 and IPv6; the kernel takes both or none (since Linux 6.2).
    pub(crate) const USO: u32 = 0x20 | 0x40;
}

/// Flags of `TUNSETIFF`.
pub(super) const TAP: i16 = 0x0002;
pub(super) const NO_PI: i16 = 0x1000;
pub(super) const VNET_HDR: i16 = 0x4000;
pub(super) const MULTI_QUEUE: i16 = 0x0100;
/// Refuse a name that exists, instead of attaching to that device.
pub(super) const EXCL: i16 = 0x8000_u16.cast_signed();

/// Opens the control device, non-blocking. The device made through it belongs to the calling
/// thread's namespace.
pub(super) fn open() -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(rustix::fs::open(TUN, flags, Mode::empty())?)
}

/// `struct ifreq` as `TUNSETIFF` uses it.
#[repr(C)]
#[derive(Debug)]
struct Request {
    name: [u8; libc::IFNAMSIZ],
    flags: i16,
    rest: [u8; 22],
}

const _: () = assert!(size_of::<Request>() == size_of::<libc::ifreq>());

/// `TUNSETIFF`: makes the device, or attaches a further queue to it. `name` may hold `%d` for a
/// number of the kernel's choice; the result is the name it has.
pub(super) fn set_iff(fd: BorrowedFd<'_>, name: &str, flags: i16) -> Result<String, Errno> {
    if name.len() > NAME_MAX {
        return Err(Errno::INVAL);
    }
    let mut request = Request {
        name: [0; libc::IFNAMSIZ],
        flags,
        rest: [0; 22],
    };
    request.name[..name.len()].copy_from_slice(name.as_bytes());
    // SAFETY: TUNSETIFF reads and writes one `struct ifreq`, whose size and start `Request` has.
    unsafe {
        ioctl(
            fd,
            Updater::<{ opcode::write::<c_int>(b'T', 202) }, Request>::new(&mut request),
        )?;
    }
    let end = request
        .name
        .iter()
        .position(|&b| b == 0)
        .unwrap_or(NAME_MAX);
    Ok(String::from_utf8_lossy(&request.name[..end]).into_owned())
}

/// `TUNGETIFF`: name and flags of the device whose queue a file is.
pub(super) fn get_iff(fd: BorrowedFd<'_>) -> Result<(String, i16), Errno> {
    let mut request = Request {
        name: [0; libc::IFNAMSIZ],
        flags: 0,
        rest: [0; 22],
    };
    // SAFETY: TUNGETIFF writes one `struct ifreq`, whose size and start `Request` has.
    unsafe {
        let get =
            Updater::<{ opcode::read::<std::ffi::c_uint>(b'T', 210) }, Request>::new(&mut request);
        ioctl(fd, get)?;
    }
    let end = request.name.iter().position(|&b| b == 0);
    let name = &request.name[..end.unwrap_or(NAME_MAX)];
    Ok((String::from_utf8_lossy(name).into_owned(), request.flags))
}

/// `TUNGETDEVNETNS`: the network namespace of the device whose queue a file is.
pub(super) fn get_netns(fd: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    /// `_IO('T', 227)`.
    const GET_DEV_NETNS: libc::Ioctl = 0x54e3;
    // SAFETY: takes no argument.
    let netns = unsafe { libc::ioctl(fd.as_raw_fd(), GET_DEV_NETNS) };
    if netns < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new file, which nobody else has.
    Ok(unsafe { OwnedFd::from_raw_fd(netns) })
}

/// A descriptor of its own for a file that this process has by number, one of those it was started
/// with.
pub(super) fn duplicate(number: i32) -> Result<OwnedFd, Errno> {
    /// Lowest number of the copy, as no other file should be below it.
    const LOWEST: i32 = 3;
    if number < LOWEST {
        return Err(Errno::BADF);
    }
    // SAFETY: the number is used within this call alone. If no file has it the kernel says so; if
    // one of ours has, it gets another descriptor, and the ioctl that follows tells what it is.
    let file = unsafe { BorrowedFd::borrow_raw(number) };
    rustix::io::fcntl_dupfd_cloexec(file, LOWEST)
}

/// `TUNSETVNETHDRSZ`: bytes of the virtio-net header in front of each frame.
pub(super) fn set_vnet_header_len(fd: BorrowedFd<'_>, len: usize) -> Result<(), Errno> {
    let len = c_int::try_from(len).map_err(|_| Errno::INVAL)?;
    // SAFETY: TUNSETVNETHDRSZ reads one int.
    unsafe {
        ioctl(
            fd,
            Setter::<{ opcode::write::<c_int>(b'T', 216) }, c_int>::new(len),
        )
    }
}

/// `TUNSETVNETLE`: the header's fields are little-endian on every machine.
pub(super) fn set_vnet_little_endian(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    // SAFETY: TUNSETVNETLE reads one int.
    unsafe {
        ioctl(
            fd,
            Setter::<{ opcode::write::<c_int>(b'T', 220) }, c_int>::new(1),
        )
    }
}

/// `TUNSETOFFLOAD`: what frames we are ready to read (bits of [`offload`]); `EINVAL` for a bit
/// that the kernel does not know.
pub(super) fn set_offload(fd: BorrowedFd<'_>, bits: u32) -> Result<(), Errno> {
    // SAFETY: TUNSETOFFLOAD takes its argument by value.
    unsafe {
        let setter = IntegerSetter::<{ opcode::write::<std::ffi::c_uint>(b'T', 208) }>::new_usize(
            bits as usize,
        );
        ioctl(fd, setter)
    }
}

/// `struct ifreq` of a question that is answered by a number.
#[repr(C)]
struct Query {
    name: [u8; libc::IFNAMSIZ],
    /// Flags are a `short`, the MTU an `int`.
    answer: [u8; 4],
    rest: [u8; 20],
}

const _: () = assert!(size_of::<Query>() == size_of::<libc::ifreq>());

/// Asks for a property of the interface `name`, in the namespace of a socket of any kind.
fn query<const REQUEST: Opcode>(
    socket: BorrowedFd<'_>,
    name: &InlinedName,
) -> Result<[u8; 4], Errno> {
    let mut query = Query {
        name: [0; libc::IFNAMSIZ],
        answer: [0; 4],
        rest: [0; 20],
    };
    let name = name.as_bytes();
    let to = query.name.get_mut(..name.len()).ok_or(Errno::INVAL)?;
    to.copy_from_slice(name);
    // SAFETY: the requests below read and write one `struct ifreq`, whose size and start `Query`
    // has.
    unsafe { ioctl(socket, Updater::<REQUEST, Query>::new(&mut query))? };
    Ok(query.answer)
}

/// `SIOCGIFFLAGS`: the lower 16 of an interface's flags (`IFF_UP` and others).
pub(crate) fn flags(socket: BorrowedFd<'_>, name: &InlinedName) -> Result<c_int, Errno> {
    let [a, b, ..] = query::<{ libc::SIOCGIFFLAGS as Opcode }>(socket, name)?;
    Ok(c_int::from(i16::from_ne_bytes([a, b])))
}

/// `SIOCGIFHWADDR`: the type of an interface's hardware (`ARPHRD_ETHER` and others).
pub(crate) fn hardware_type(socket: BorrowedFd<'_>, name: &InlinedName) -> Result<u16, Errno> {
    // A `struct sockaddr`, which begins with its family.
    let [a, b, ..] = query::<{ libc::SIOCGIFHWADDR as Opcode }>(socket, name)?;
    Ok(u16::from_ne_bytes([a, b]))
}

/// `SIOCGIFMTU`: an interface's longest IP packet, in bytes.
pub(crate) fn mtu(socket: BorrowedFd<'_>, name: &InlinedName) -> Result<c_int, Errno> {
    query::<{ libc::SIOCGIFMTU as Opcode }>(socket, name).map(c_int::from_ne_bytes)
}

/// A question of ethtool(8) about an interface: `words` begin with the command, and have the
/// answer.
pub(crate) fn ethtool<const N: usize>(
    socket: BorrowedFd<'_>,
    name: &InlinedName,
    mut words: [u32; N],
) -> Result<[u32; N], Errno> {
    const SIOCETHTOOL: libc::Ioctl = 0x8946;
    // SAFETY: zero is a value of this plain structure.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    let bytes = name.as_str().bytes();
    // The last byte stays zero.
    for (to, byte) in request.ifr_name[..libc::IFNAMSIZ - 1].iter_mut().zip(bytes) {
        *to = byte as libc::c_char;
    }
    request.ifr_ifru.ifru_data = words.as_mut_ptr().cast();
    // SAFETY: the request leads to as many words as the command's structure has; the kernel reads
    // and writes those until the call has ended.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL, &raw mut request) };
    match done {
        0 => Ok(words),
        _ => Err(last_error()),
    }
}

/// Speed of an interface's medium in bytes per second; `None` if it has none, or does not know it.
/// Waits for the kernel's lock of all interfaces.
pub(crate) fn speed(socket: BorrowedFd<'_>, name: &InlinedName) -> Option<u64> {
    /// `ETHTOOL_GLINKSETTINGS`; its structure has twelve words, the second of which is the speed in
    /// Mb/s, and three masks of as many words each as the last byte of the fourth says, at most
    /// 127.
    const GET_LINK_SETTINGS: u32 = 0x4c;
    const WORDS: usize = 12 + 3 * i8::MAX as usize;
    let mut words = [0; WORDS];
    words[0] = GET_LINK_SETTINGS;
    // The kernel answers with the length of its masks, as a negative number, and nothing else.
    let [.., length] = ethtool(socket, name, words).ok()?[3].to_ne_bytes();
    let length = length.cast_signed().checked_neg()?;
    words[3] = u32::from_ne_bytes([0, 0, 0, length.cast_unsigned()]);
    match ethtool(socket, name, words).ok()?[1] {
        megabits @ 1..=0x7fff_ffff => Some(u64::from(megabits) * 125_000),
        // `SPEED_UNKNOWN` is the highest number.
        _ => None,
    }
}

/// Has a netlink socket take reports of one interface alone: those whose `struct ifinfomsg` has
/// this index (`SO_ATTACH_FILTER`).
pub(crate) fn hear_of(socket: BorrowedFd<'_>, index: u32) -> Result<(), Errno> {
    /// Offset of `ifi_index`: behind `struct nlmsghdr` and four bytes.
    const INDEX: u32 = 20;
    let statement = |code: u32, yes, no, k| libc::sock_filter {
        code: code as u16,
        jt: yes,
        jf: no,
        k,
    };
    let (load, equal, end) = (
        libc::BPF_LD | libc::BPF_W | libc::BPF_ABS,
        libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
        libc::BPF_RET | libc::BPF_K,
    );
    let mut program = [
        statement(load, 0, 0, INDEX),
        // A word is loaded as one of the network's byte order.
        statement(equal, 0, 1, u32::from_be_bytes(index.to_ne_bytes())),
        statement(end, 0, 0, u32::MAX),
        statement(end, 0, 0, 0),
    ];
    let filter = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: SO_ATTACH_FILTER reads one `struct sock_fprog` of that size, and as many statements
    // as it says, which live until the call has ended.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const filter).cast(),
            size_of::<libc::sock_fprog>() as libc::socklen_t,
        )
    };
    match done {
        0 => Ok(()),
        _ => Err(last_error()),
    }
}

fn last_error() -> Errno {
    Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::INVAL)
}
