//! Many datagrams per system call: sendmmsg(2) and recvmmsg(2), for which rustix has no wrapper.

#![allow(
    unsafe_code,
    reason = "sendmmsg(2) and recvmmsg(2) take arrays of pointers"
)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

/// Bytes of a datagram.
pub(super) const PAYLOAD: usize = 64;
/// Datagrams per call.
pub(super) const BATCH: usize = 64;

/// One datagram's payload.
pub(super) type Datagram = [u8; PAYLOAD];

/// Sends up to [`BATCH`] datagrams on a connected socket; returns how many the kernel took.
pub(super) fn send(socket: BorrowedFd<'_>, datagrams: &mut [Datagram]) -> io::Result<usize> {
    call(datagrams, |messages, n| {
        // SAFETY: `call` gives `n` valid messages; the kernel reads the payloads, which outlive
        // the call.
        unsafe { libc::sendmmsg(socket.as_raw_fd(), messages, n, 0) }
    })
}

/// Receives up to [`BATCH`] datagrams, waiting for the first only; returns how many. A longer one
/// is cut, a shorter one leaves the rest of its slot as it was.
pub(super) fn receive(socket: BorrowedFd<'_>, datagrams: &mut [Datagram]) -> io::Result<usize> {
    call(datagrams, |messages, n| {
        // SAFETY: `call` gives `n` valid messages whose payloads the kernel may write; no timeout
        // is given.
        unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                messages,
                n,
                libc::MSG_WAITFORONE,
                ptr::null_mut(),
            )
        }
    })
}

/// Makes the kernel's view of `datagrams` and runs `system_call` on it.
fn call(
    datagrams: &mut [Datagram],
    system_call: impl FnOnce(*mut libc::mmsghdr, libc::c_uint) -> libc::c_int,
) -> io::Result<usize> {
    // SAFETY: both are plain C structures of integers and pointers, for which all zero is valid
    // (and means: none).
    let (mut vectors, mut messages): ([libc::iovec; BATCH], [libc::mmsghdr; BATCH]) =
        unsafe { std::mem::zeroed() };
    let n = datagrams.len().min(BATCH);
    for ((datagram, vector), message) in datagrams.iter_mut().zip(&mut vectors).zip(&mut messages)
    {
        vector.iov_base = datagram.as_mut_ptr().cast();
        vector.iov_len = PAYLOAD;
        message.msg_hdr.msg_iov = vector;
        message.msg_hdr.msg_iovlen = 1;
    }
    let done = system_call(messages.as_mut_ptr(), n as libc::c_uint);
    usize::try_from(done).map_err(|_| io::Error::last_os_error())
}
