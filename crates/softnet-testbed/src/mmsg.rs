//! `sendmmsg` and `recvmmsg`: many datagrams in one system call.

use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd as _;
use std::ptr;

/// Datagrams per system call.
pub const BATCH: usize = 64;

/// Buffers for [`BATCH`] datagrams of one size on a connected or bound socket.
pub struct Batch {
    headers: Vec<libc::mmsghdr>,
    vectors: Vec<libc::iovec>,
    data: Vec<u8>,
    size: usize,
}

impl std::fmt::Debug for Batch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Batch").field("size", &self.size).finish()
    }
}

// SAFETY: the pointers in headers and vectors are written before each call that follows them, and
// never followed else.
unsafe impl Send for Batch {}

impl Batch {
    /// Buffers of `size` bytes, which is not 0, zeroed.
    pub fn new(size: usize) -> Batch {
        // SAFETY: both are plain data (integers and pointers), for which all zeroes is a value: no
        // name, no data.
        let (header, vector) = unsafe { std::mem::zeroed() };
        Batch {
            headers: vec![header; BATCH],
            vectors: vec![vector; BATCH],
            data: vec![0; size * BATCH],
            size,
        }
    }

    /// The datagrams to send, each of the whole size.
    pub fn datagrams(&mut self) -> impl Iterator<Item = &mut [u8]> {
        self.data.chunks_exact_mut(self.size)
    }

    /// Sends up to `count` datagrams to the socket's peer; how many the kernel took.
    pub fn send(&mut self, socket: &UdpSocket, count: usize) -> io::Result<usize> {
        let (headers, _) = self.prepare();
        let count = count.min(BATCH) as libc::c_uint;
        // SAFETY: the first `count` headers exist; each points at one vector and that at a buffer
        // of its length, all owned by `self`, which is borrowed exclusively. The descriptor is
        // open while `socket` is borrowed.
        let sent = unsafe { libc::sendmmsg(socket.as_raw_fd(), headers, count, 0) };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }

    /// Waits for a datagram, then takes what else is there, each cut to the size.
    pub fn receive(&mut self, socket: &UdpSocket) -> io::Result<impl Iterator<Item = &[u8]>> {
        let (headers, count) = self.prepare();
        let (flags, forever) = (libc::MSG_WAITFORONE, ptr::null_mut());
        // SAFETY: as in `send`; the kernel writes into the buffers, within their lengths, and
        // into the headers' lengths and flags.
        let received =
            unsafe { libc::recvmmsg(socket.as_raw_fd(), headers, count, flags, forever) };
        let received = usize::try_from(received).map_err(|_| io::Error::last_os_error())?;
        let buffers = self.data.chunks_exact(self.size).take(received);
        let headers = self.headers.iter().map(|h| h.msg_len as usize);
        Ok(buffers.zip(headers).map(|(data, len)| &data[..len]))
    }

    /// Points the headers at the buffers.
    fn prepare(&mut self) -> (*mut libc::mmsghdr, libc::c_uint) {
        let buffers = self.data.chunks_exact_mut(self.size);
        for (vector, data) in self.vectors.iter_mut().zip(buffers) {
            vector.iov_base = data.as_mut_ptr().cast();
            vector.iov_len = data.len();
        }
        for (header, vector) in self.headers.iter_mut().zip(&mut self.vectors) {
            header.msg_hdr.msg_iov = vector;
            header.msg_hdr.msg_iovlen = 1;
        }
        (self.headers.as_mut_ptr(), BATCH as libc::c_uint)
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
        let (mut batch, mut counted) = (Batch::new(2048), 0);
        while counted < 5 {
            let received = batch.receive(&receiver).expect("they are there");
            counted += received.filter(|datagram| datagram.len() == 100).count();
        }
        assert_eq!(counted, 5);
        // Moved and used again.
        let mut moved = Box::new(out);
        assert_eq!(
            moved
                .send(&sender, BATCH + 1)
                .expect("a socket buffer holds 64"),
            BATCH
        );
    }
}
