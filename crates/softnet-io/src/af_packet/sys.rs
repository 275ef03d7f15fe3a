//! Packet sockets (`linux/if_packet.h`): their options, and `recvmmsg` and `sendmmsg` on them,
//! each as a safe function.

#![allow(
    unsafe_code,
    reason = "options of packet sockets, recvmmsg(2) and sendmmsg(2) have no safe wrapper"
)]

use std::ffi::c_int;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

use rustix::io::Errno;
use softnet::mem::Packet;

/// Bytes of the virtio-net header on a packet socket: `struct virtio_net_hdr`, without
/// `num_buffers`. In the byte order of the machine.
pub(super) const HEADER_LEN: usize = 10;
/// Frames of one call that receives.
pub(super) const RECEIVE_BATCH: usize = 32;
/// Frames of one call that sends.
pub(super) const SEND_BATCH: usize = 16;

/// Options of `SOL_PACKET`.
pub(super) const AUXDATA: c_int = 8;
const ADD_MEMBERSHIP: c_int = 1;
const STATISTICS: c_int = 6;
const VNET_HDR: c_int = 15;
const FANOUT: c_int = 18;
pub(super) const IGNORE_OUTGOING: c_int = 23;
const VNET_HDR_SZ: c_int = 24;

/// `PACKET_MR_PROMISC`.
const PROMISCUOUS: u16 = 1;
/// `PACKET_FANOUT_HASH` with `PACKET_FANOUT_FLAG_IGNORE_OUTGOING`: the group receives in the place
/// of its sockets, whose own option does not count.
const BY_HASH: u32 = 0x4000;
/// `PACKET_FANOUT_FLAG_UNIQUEID`: the kernel chooses a number for the group.
const UNIQUE: u32 = 0x2000;
/// `TP_STATUS_VLAN_VALID`: the kernel took a tag off.
const VLAN_VALID: u32 = 1 << 4;
/// `TP_STATUS_VLAN_TPID_VALID`: it says of which protocol.
const VLAN_TPID_VALID: u32 = 1 << 6;

fn last_error() -> Errno {
    Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::INVAL)
}

/// Sets an option of `level` to `size_of::<T>()` bytes.
///
/// # Safety The kernel reads that option as a value of type `T`, and follows pointers in it to
/// what lives and is as long as it says.
unsafe fn set<T>(
    socket: BorrowedFd<'_>,
    level: c_int,
    name: c_int,
    value: &T,
) -> Result<(), Errno> {
    // SAFETY: the kernel reads as many bytes as `T` has, which live until it returns. The caller
    // answers for pointers in it.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            ptr::from_ref(value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    if done == 0 { Ok(()) } else { Err(last_error()) }
}

/// Sets an option of `SOL_PACKET` whose value is an `int`.
pub(super) fn set_option(socket: BorrowedFd<'_>, name: c_int, value: c_int) -> Result<(), Errno> {
    // SAFETY: an int has no pointer.
    unsafe { set(socket, libc::SOL_PACKET, name, &value) }
}

/// Reads an option of `SOL_PACKET` as so many bytes.
fn option<const N: usize>(socket: BorrowedFd<'_>, name: c_int) -> Result<[u8; N], Errno> {
    let (mut value, mut length) = ([0; N], N as libc::socklen_t);
    // SAFETY: the kernel writes at most `length` bytes, as many as `value` has.
    let done = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            name,
            value.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if done == 0 {
        Ok(value)
    } else {
        Err(last_error())
    }
}

/// Frames come and go with a virtio-net header of [`HEADER_LEN`] bytes. True: the kernel knows
/// large UDP frames, too (Linux 6.2; it is known by an option of 6.6).
pub(super) fn set_vnet_header(socket: BorrowedFd<'_>) -> Result<bool, Errno> {
    if cfg!(target_endian = "big") {
        // Its fields would be in the other byte order than those of other drivers.
        return Err(Errno::NOTSUP);
    }
    match set_option(socket, VNET_HDR_SZ, HEADER_LEN as c_int) {
        Ok(()) => Ok(true),
        Err(_) => set_option(socket, VNET_HDR, 1).map(|()| false),
    }
}

/// The interface takes in all frames as long as the socket is open.
pub(crate) fn be_promiscuous(socket: BorrowedFd<'_>, index: u32) -> Result<(), Errno> {
    let membership = libc::packet_mreq {
        mr_ifindex: index as c_int,
        mr_type: PROMISCUOUS,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    // SAFETY: PACKET_ADD_MEMBERSHIP reads a `struct packet_mreq`, which has no pointer.
    unsafe { set(socket, libc::SOL_PACKET, ADD_MEMBERSHIP, &membership) }
}

/// Receives all frames of an interface.
pub(super) fn bind(socket: BorrowedFd<'_>, index: u32) -> Result<(), Errno> {
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: (libc::ETH_P_ALL as u16).to_be(),
        sll_ifindex: index as c_int,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    // SAFETY: the kernel reads one `struct sockaddr_ll` of that size.
    let done = unsafe {
        libc::bind(
            socket.as_raw_fd(),
            (&raw const address).cast(),
            size_of_val(&address) as libc::socklen_t,
        )
    };
    if done == 0 { Ok(()) } else { Err(last_error()) }
}

/// The index of the interface that a socket is bound to; none if that is gone.
pub(super) fn bound_to(socket: BorrowedFd<'_>) -> Result<Option<u32>, Errno> {
    let mut address = libc::sockaddr_ll {
        sll_family: 0,
        sll_protocol: 0,
        sll_ifindex: -1,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    let mut length = size_of_val(&address) as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes to the address, which has as many, of any
    // values that integers have.
    let done = unsafe {
        libc::getsockname(
            socket.as_raw_fd(),
            (&raw mut address).cast(),
            &raw mut length,
        )
    };
    if done != 0 {
        return Err(last_error());
    }
    let is_one = i32::from(address.sll_family) == libc::AF_PACKET;
    let index = u32::try_from(address.sll_ifindex).ok();
    Ok(index.filter(|&index| is_one && index > 0))
}

/// Drops all frames from now on (`SO_ATTACH_FILTER`).
pub(super) fn receive_nothing(socket: BorrowedFd<'_>) -> Result<(), Errno> {
    let mut program = [libc::sock_filter {
        code: (libc::BPF_RET | libc::BPF_K) as u16,
        jt: 0,
        jf: 0,
        k: 0,
    }];
    let filter = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: SO_ATTACH_FILTER reads one `struct sock_fprog` and as many statements as it says,
    // which live until the call has ended.
    unsafe { set(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &filter) }
}

/// Undoes [`receive_nothing`].
pub(super) fn receive_all(socket: BorrowedFd<'_>) -> Result<(), Errno> {
    // SAFETY: SO_DETACH_FILTER reads an int, which it ignores.
    unsafe { set(socket, libc::SOL_SOCKET, libc::SO_DETACH_FILTER, &0_i32) }
}

/// Makes a group of sockets that share out the flows among them, with this socket alone. Returns
/// its number.
pub(super) fn make_fanout(socket: BorrowedFd<'_>) -> Result<u16, Errno> {
    set_option(socket, FANOUT, ((BY_HASH | UNIQUE) << 16) as c_int)?;
    let [a, b, ..] = u32::from_ne_bytes(option::<4>(socket, FANOUT)?).to_le_bytes();
    Ok(u16::from_le_bytes([a, b]))
}

/// Joins a group.
pub(super) fn join_fanout(socket: BorrowedFd<'_>, group: u16) -> Result<(), Errno> {
    set_option(socket, FANOUT, (BY_HASH << 16 | u32::from(group)) as c_int)
}

/// Frames that the socket dropped since the last call (`struct tpacket_stats`).
pub(super) fn take_drops(socket: BorrowedFd<'_>) -> Result<u32, Errno> {
    let [.., a, b, c, d] = option::<8>(socket, STATISTICS)?;
    Ok(u32::from_ne_bytes([a, b, c, d]))
}

/// A frame that was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Message {
    /// Bytes that were written, the virtio-net header included.
    pub(super) len: usize,
    /// The buffers were too short for it.
    pub(super) cut: bool,
    /// Protocol and content of a VLAN tag that the kernel took off.
    pub(super) tag: Option<[u16; 2]>,
}

/// Room for one message of ancillary data with a `struct tpacket_auxdata` of 20 bytes, and more.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Control([u8; 64]);

/// The headers of a call that receives.
pub(super) struct ReceiveBatch {
    headers: Box<[libc::mmsghdr; RECEIVE_BATCH]>,
    vectors: Box<[[libc::iovec; 2]; RECEIVE_BATCH]>,
    controls: Box<[Control; RECEIVE_BATCH]>,
}

impl std::fmt::Debug for ReceiveBatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ReceiveBatch")
    }
}

// SAFETY: the pointers in headers and vectors are written before each call that follows them, and
// never followed else.
unsafe impl Send for ReceiveBatch {}

impl ReceiveBatch {
    pub(super) fn new() -> ReceiveBatch {
        // SAFETY: both are plain data (integers and pointers), for which all zeroes is a value.
        let (header, vector) = unsafe { std::mem::zeroed() };
        ReceiveBatch {
            headers: Box::new([header; RECEIVE_BATCH]),
            vectors: Box::new([[vector; 2]; RECEIVE_BATCH]),
            controls: Box::new([Control([0; 64]); RECEIVE_BATCH]),
        }
    }

    /// Receives frames that wait, into as many of the buffers as there are frames, each into both
    /// parts of its own. Returns how many.
    pub(super) fn receive<'a>(
        &mut self,
        socket: BorrowedFd<'_>,
        buffers: impl Iterator<Item = [&'a mut [u8]; 2]>,
    ) -> Result<usize, Errno> {
        let mut count = 0;
        let headers = self.headers.iter_mut().zip(self.vectors.iter_mut());
        for (((header, vectors), control), parts) in
            headers.zip(self.controls.iter_mut()).zip(buffers)
        {
            for (vector, part) in vectors.iter_mut().zip(parts) {
                vector.iov_base = part.as_mut_ptr().cast();
                vector.iov_len = part.len();
            }
            let header = &mut header.msg_hdr;
            header.msg_iov = vectors.as_mut_ptr();
            header.msg_iovlen = vectors.len();
            header.msg_control = control.0.as_mut_ptr().cast();
            header.msg_controllen = control.0.len();
            header.msg_flags = 0;
            count += 1;
        }
        loop {
            // SAFETY: the first `count` headers were written above. Each points at two vectors and
            // a control buffer that `self` owns, which is borrowed exclusively; the vectors at
            // buffers that the caller gave up exclusively for as long as `'a`, which outlives this
            // call, with their lengths.
            let received = unsafe {
                libc::recvmmsg(
                    socket.as_raw_fd(),
                    self.headers.as_mut_ptr(),
                    count,
                    libc::MSG_DONTWAIT,
                    ptr::null_mut(),
                )
            };
            match usize::try_from(received).map_err(|_| last_error()) {
                Err(Errno::INTR) => {}
                result => return result,
            }
        }
    }

    /// The frame at this place of the last call.
    pub(super) fn message(&self, place: usize) -> Message {
        let header = &self.headers[place];
        let control = &self.controls[place].0;
        let length = (header.msg_hdr.msg_controllen).min(control.len());
        Message {
            len: header.msg_len as usize,
            cut: header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0,
            tag: tag(&control[..length]),
        }
    }
}

/// The VLAN tag in the auxiliary data (`struct tpacket_auxdata`) of a frame.
fn tag(control: &[u8]) -> Option<[u16; 2]> {
    /// Bytes of a `struct cmsghdr`: a length, a level and a type.
    const HEAD: usize = size_of::<libc::cmsghdr>();
    let level = HEAD - 8;
    let word = |at: usize| {
        let bytes = control.get(at..at + 4)?.first_chunk()?;
        Some(u32::from_ne_bytes(*bytes))
    };
    let half = |at: usize| {
        let bytes = control.get(at..at + 2)?.first_chunk()?;
        Some(u16::from_ne_bytes(*bytes))
    };
    if word(level)? != libc::SOL_PACKET as u32 || word(level + 4)? != AUXDATA as u32 {
        return None;
    }
    let status = word(HEAD)?;
    if status & VLAN_VALID == 0 {
        return None;
    }
    let tci = half(HEAD + 16)?;
    let tpid = match status & VLAN_TPID_VALID {
        0 => libc::ETH_P_8021Q as u16,
        _ => half(HEAD + 18)?,
    };
    Some([tpid, tci])
}

/// The headers of a call that sends.
pub(super) struct SendBatch {
    headers: Box<[libc::mmsghdr; SEND_BATCH]>,
    vnet: Box<[[u8; HEADER_LEN]; SEND_BATCH]>,
    /// The vectors of all messages, one behind the other.
    vectors: Vec<libc::iovec>,
}

impl std::fmt::Debug for SendBatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SendBatch")
    }
}

// SAFETY: as for `ReceiveBatch`.
unsafe impl Send for SendBatch {}

impl SendBatch {
    pub(super) fn new() -> SendBatch {
        // SAFETY: plain data (integers and pointers), for which all zeroes is a value.
        let header = unsafe { std::mem::zeroed() };
        SendBatch {
            headers: Box::new([header; SEND_BATCH]),
            vnet: Box::new([[0; HEADER_LEN]; SEND_BATCH]),
            vectors: Vec::with_capacity(4 * SEND_BATCH),
        }
    }

    /// Sends packets, at least one and at most [`SEND_BATCH`]. Returns how many of them were sent;
    /// an error is about the first.
    pub(super) fn send<'a>(
        &mut self,
        socket: BorrowedFd<'_>,
        packets: impl Iterator<Item = &'a Packet>,
    ) -> Result<usize, Errno> {
        let mut count = 0;
        self.vectors.clear();
        let headers = self.headers.iter_mut().zip(self.vnet.iter_mut());
        for ((header, vnet), packet) in headers.zip(packets) {
            let bytes = packet.vnet_header().to_bytes();
            vnet.copy_from_slice(&bytes[..HEADER_LEN]);
            let before = self.vectors.len();
            let vector = |bytes: &[u8]| libc::iovec {
                iov_base: bytes.as_ptr().cast_mut().cast(),
                iov_len: bytes.len(),
            };
            self.vectors.push(vector(vnet));
            self.vectors.extend(packet.segments().map(vector));
            header.msg_hdr.msg_iovlen = self.vectors.len() - before;
            count += 1;
        }
        // They stay in their places from here on.
        let mut rest = &mut self.vectors[..];
        for header in &mut self.headers[..count] {
            let (own, others) = rest.split_at_mut(header.msg_hdr.msg_iovlen);
            header.msg_hdr.msg_iov = own.as_mut_ptr();
            rest = others;
        }
        // SAFETY: the first `count` headers were written above. Each points at as many vectors as
        // it says, which `self` owns and does not move; they point at bytes of `self` and of
        // packets that are borrowed for `'a`, with their lengths. The kernel only reads them.
        // Names and control data stay null.
        let sent = unsafe {
            libc::sendmmsg(
                socket.as_raw_fd(),
                self.headers.as_mut_ptr(),
                count as libc::c_uint,
                libc::MSG_DONTWAIT,
            )
        };
        usize::try_from(sent).map_err(|_| last_error())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ancillary data as the kernel writes it, with a status, a tag and its protocol.
    fn control(status: u32, tci: u16, tpid: u16) -> Vec<u8> {
        let mut bytes = 36_usize.to_ne_bytes().to_vec();
        bytes.extend((libc::SOL_PACKET).to_ne_bytes());
        bytes.extend(AUXDATA.to_ne_bytes());
        bytes.extend(status.to_ne_bytes());
        bytes.extend([0; 12]);
        bytes.extend(tci.to_ne_bytes());
        bytes.extend(tpid.to_ne_bytes());
        bytes
    }

    #[test]
    fn tags_of_auxiliary_data() {
        assert_eq!(tag(&control(1, 7, 0x8100)), None);
        assert_eq!(tag(&control(0x51, 7, 0x88a8)), Some([0x88a8, 7]));
        assert_eq!(tag(&control(0x10, 0, 0)), Some([0x8100, 0]));
        let whole = control(0x51, 7, 0x88a8);
        for length in 0..whole.len() {
            assert_eq!(tag(&whole[..length]), None, "{length} bytes");
        }
        let mut other = whole;
        other[8] ^= 1;
        assert_eq!(tag(&other), None);
    }
}
