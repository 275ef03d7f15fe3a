//! `sendmmsg` and `recvmmsg`: many datagrams in one system call.

use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd as _;
use std::ptr;

/// Datagrams per system call.
pub(crate) const BATCH: usize = 64;

/// Gives what `socket` sends a priority (`SO_PRIORITY`), which names a class of the root qdisc.
pub(crate) fn set_priority(socket: &UdpSocket, priority: u32) -> io::Result<()> {
    // SAFETY: the option's value is an int, which lives through the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PRIORITY,
            (&raw const priority).cast(),
            size_of_val(&priority) as libc::socklen_t,
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Buffers for [`BATCH`] datagrams of one size on a connected or bound socket.
///
/// The headers point into `iovecs`, which point into `_data`. Both live on the heap, are never
/// resized and never accessed but by the kernel during a call, so the pointers stay good as long
/// as the value does, wherever it moves.
pub(crate) struct Batch {
    headers: Vec<libc::mmsghdr>,
    _iovecs: Vec<libc::iovec>,
    _data: Vec<u8>,
}

impl Batch {
    /// Buffers of `size` bytes, zeroed.
    pub(crate) fn new(size: usize) -> Batch {
        let mut data = vec![0; size * BATCH];
        let base = data.as_mut_ptr();
        let mut iovecs: Vec<libc::iovec> = (0..BATCH)
            .map(|i| libc::iovec {
                iov_base: base.wrapping_add(i * size).cast(),
                iov_len: size,
            })
            .collect();
        let first = iovecs.as_mut_ptr();
        let headers = (0..BATCH)
            .map(|i| {
                // SAFETY: mmsghdr is plain data (integers and pointers), for which all zeroes is
                // a value: no name, no control data.
                let mut header: libc::mmsghdr = unsafe { std::mem::zeroed() };
                header.msg_hdr.msg_iov = first.wrapping_add(i);
                header.msg_hdr.msg_iovlen = 1;
                header
            })
            .collect();
        Batch {
            headers,
            _iovecs: iovecs,
            _data: data,
        }
    }

    /// Sends up to `count` datagrams to the socket's peer; how many the kernel took.
    pub(crate) fn send(&mut self, socket: &UdpSocket, count: usize) -> io::Result<usize> {
        let count = count.min(self.headers.len());
        // SAFETY: the first `count` headers exist; each points at one iovec and that at a buffer
        // of its length, all owned by `self`, which is borrowed exclusively. The descriptor is
        // open while `socket` is borrowed.
        let sent = unsafe {
            libc::sendmmsg(
                socket.as_raw_fd(),
                self.headers.as_mut_ptr(),
                count as libc::c_uint,
                0,
            )
        };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }

    /// Waits for a datagram, then takes what else is there; how many of them have `payload` bytes.
    pub(crate) fn receive(&mut self, socket: &UdpSocket, payload: usize) -> io::Result<usize> {
        let (headers, count) = (
            self.headers.as_mut_ptr(),
            self.headers.len() as libc::c_uint,
        );
        // SAFETY: as in `send`; the kernel writes into the buffers, within their lengths, and
        // into the headers' lengths and flags.
        let received = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                headers,
                count,
                libc::MSG_WAITFORONE,
                ptr::null_mut(),
            )
        };
        let received = usize::try_from(received).map_err(|_| io::Error::last_os_error())?;
        Ok(self.headers[..received]
            .iter()
            .filter(|h| h.msg_len as usize == payload)
            .count())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_arrive_and_other_sizes_do_not_count() {
        let receiver = UdpSocket::bind("127.0.0.1:0").expect("loopback is there");
        let sender = UdpSocket::bind("127.0.0.1:0").expect("loopback is there");
        let to = receiver.local_addr().expect("it is bound");
        sender.connect(to).expect("loopback is there");
        let mut out = Batch::new(100);
        assert_eq!(out.send(&sender, 5).expect("a socket buffer holds five"), 5);
        sender.send(&[0; 99]).expect("and one more");
        let mut batch = Batch::new(2048);
        let mut counted = 0;
        while counted < 5 {
            counted += batch.receive(&receiver, 100).expect("they are there");
        }
        assert_eq!(counted, 5);
        // Moved and used again: the pointers are still good.
        let mut moved = Box::new(out);
        assert_eq!(
            moved
                .send(&sender, BATCH + 1)
                .expect("a socket buffer holds 64"),
            BATCH
        );
    }
}
