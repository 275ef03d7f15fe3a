//! Writing frames to a TAP queue: one `write` per frame, or `writev` for a chained one.
//!
//! There is no ring in this direction: the kernel takes a frame and processes it within the system
//! call, so that a queue is never busy. Sent packets are freed together, after the last one was
//! written.

use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::io::Errno;
use softnet::mem::{Packet, PacketList};
use softnet::stats::DropReason;
use softnet::tx::{Sent, TxRing, Xmit};
use softnet::wire::VNET_HDR_LEN;

use super::TapLink;

/// Segments of a chained frame that are written without allocating: 64 KiB in buffers of 2 KiB are
/// 37, merged datagrams up to 65.
const SEGMENTS: usize = 66;
/// The kernel's limit for one `writev` (`UIO_MAXIOV`).
const MAX_SEGMENTS: usize = 1024;

/// One transmit queue of a TAP device.
#[derive(Debug)]
pub struct TapTx {
    fd: Arc<OwnedFd>,
    link: Arc<TapLink>,
}

impl TapTx {
    pub(super) fn new(fd: Arc<OwnedFd>, link: Arc<TapLink>) -> TapTx {
        TapTx { fd, link }
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
            let before = sent.dropped.map_or(0, |(_, n)| n);
            let dropped = before + packets.take().wire_packets();
            sent.dropped = Some((DropReason::DeviceDown, dropped));
            return Xmit::Complete;
        }
        let mut done = PacketList::new();
        while let Some(mut packet) = packets.pop_front() {
            let (wire_packets, wire_len) = (packet.wire_packets(), packet.wire_len());
            match self.send(&mut packet) {
                Ok(_) => {
                    sent.packets += wire_packets;
                    sent.bytes += wire_len;
                }
                Err(e) => {
                    let before = sent.dropped.map_or(0, |(_, n)| n);
                    sent.dropped = Some((reason(e), before + wire_packets));
                }
            }
            done.push_back(packet);
        }
        drop(done);
        Xmit::Complete
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
