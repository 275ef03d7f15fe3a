//! Writing frames to a TAP queue: one `write` per frame, or `writev` for a chained one.
//!
//! There is no ring in this direction: the kernel takes a frame and processes it within the system
//! call. What that takes is up to who owns the other end: its filter rules, its bridge. So a queue
//! whose batch has taken long is busy until its worker runs it again, which charges its port for
//! the time. Sent packets are freed together, after the last one was written.

use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use softnet::mem::{Packet, PacketList};
use softnet::stats::DropReason;
use softnet::tx::{RingWaker, Sent, TxRing, Xmit};
use softnet::wire::VNET_HDR_LEN;

use super::TapLink;
use crate::driver::down;

/// Segments of a chained frame that are written without allocating: 64 KiB in buffers of 2 KiB are
/// 37, merged datagrams up to 65.
const SEGMENTS: usize = 66;
/// The kernel's limit for one `writev` (`UIO_MAXIOV`).
const MAX_SEGMENTS: usize = 1024;

/// Time that the writes of one batch may take: somewhat more than the 64 of a full run do where the
/// kernel has little to do with a frame (1.5 to 2.5 µs each), so that those are not cut. As long as
/// two rounds of a worker.
const LONGEST_BATCH: Duration = Duration::from_micros(200);
/// Writes between two looks at the clock. Each costs 20 to 50 times as much as the look.
const WRITES: usize = 4;

/// One transmit queue of a TAP device.
#[derive(Debug)]
pub struct TapTx {
    fd: Arc<OwnedFd>,
    link: Arc<TapLink>,
    waker: Option<RingWaker>,
}

impl TapTx {
    pub(super) fn new(fd: Arc<OwnedFd>, link: Arc<TapLink>) -> TapTx {
        TapTx {
            fd,
            link,
            waker: None,
        }
    }

    pub(super) fn link(&self) -> &Arc<TapLink> {
        &self.link
    }

    fn send(&self, packet: &mut Packet) -> Result<usize, Errno> {
        let header = packet.vnet_header().to_bytes();
        if !packet.is_chained()
            && let Some(room) = packet.push_front(VNET_HDR_LEN)
        {
            room.copy_from_slice(&header);
            return rustix::io::retry_on_intr(|| rustix::io::write(&self.fd, packet.data()));
        }
        let segments = 1 + packet.segments().count();
        if segments <= SEGMENTS {
            let mut parts = [IoSlice::new(&[]); SEGMENTS];
            parts[0] = IoSlice::new(&header);
            for (part, segment) in parts[1..].iter_mut().zip(packet.segments()) {
                *part = IoSlice::new(segment);
            }
            return self.write_parts(&parts[..segments]);
        }
        if segments > MAX_SEGMENTS {
            return Err(Errno::MSGSIZE);
        }
        let header = std::iter::once(&header[..]);
        let parts: Vec<_> = header.chain(packet.segments()).map(IoSlice::new).collect();
        self.write_parts(&parts)
    }

    fn write_parts(&self, parts: &[IoSlice<'_>]) -> Result<usize, Errno> {
        rustix::io::retry_on_intr(|| rustix::io::writev(&self.fd, parts))
    }
}

impl TxRing for TapTx {
    fn xmit(&mut self, packets: &mut PacketList, sent: &mut Sent) -> Xmit {
        if !self.link.is_up() {
            // The kernel would refuse each.
            return down(packets, sent);
        }
        let mut done = PacketList::new();
        let start = Instant::now();
        let mut over = false;
        while !over && let Some(mut packet) = packets.pop_front() {
            let (wire_packets, wire_len) = (packet.wire_packets(), packet.wire_len());
            match self.send(&mut packet) {
                Ok(_) => {
                    sent.packets += wire_packets;
                    sent.bytes += wire_len;
                }
                Err(e) => sent.drop(reason(e), &packet),
            }
            done.push_back(packet);
            over = done.len().is_multiple_of(WRITES) && start.elapsed() >= LONGEST_BATCH;
        }
        drop(done);
        if packets.is_empty() {
            return Xmit::Complete;
        }
        // Others have their turn first.
        if let Some(waker) = &self.waker {
            waker.wake();
        }
        Xmit::Busy
    }

    fn bind(&mut self, waker: RingWaker) {
        self.waker = Some(waker);
    }
}

fn reason(e: Errno) -> DropReason {
    match e {
        // EIO: the interface is down. EBADFD: it was removed.
        Errno::IO | Errno::BADFD => DropReason::DeviceDown,
        // EINVAL: the kernel does not accept the frame or its header. ENOMEM, ENOBUFS, EAGAIN: it
        // has no memory for it.
        _ => DropReason::DriverRefused,
    }
}
