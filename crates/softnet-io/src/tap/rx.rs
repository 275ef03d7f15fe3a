//! Reading frames from a TAP queue.
//!
//! Each read is one `readv` into `[virtio-net header + start of the frame: a small buffer][rest: a large buffer]`. The large buffer
//! stays posted until a frame needs it. When the pool of large buffers has none (or there is no such pool), a scratch area takes
//! its place, and the rest of a large frame is copied to further small buffers. When there is no small buffer either, the whole
//! frame goes to the scratch area and is dropped, so that the queue never sticks.

use std::io::IoSliceMut;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;
use softnet::packet::{HEADROOM, MAX_FRAME, Packet, PacketList, VNET_HDR_LEN, VnetHeader};
use softnet::rx::{CountDrop, Polled, RxQueue};
use softnet::stats::DropReason;
use softnet::time::Time;

use super::Buffers;

/// Small buffers taken from the pool at once. What is not used stays with the queue, as the buffers of a hardware ring do.
const REFILL: usize = 16;
/// An Ethernet header.
const MIN_FRAME: usize = 14;

/// One receive queue of a TAP device.
#[derive(Debug)]
pub struct TapRx {
    fd: Arc<OwnedFd>,
    queue: u16,
    buffers: Buffers,
    /// Empty small buffers.
    fresh: PacketList,
    /// The posted large buffer.
    large: Option<Packet>,
    /// Longer than any frame with its header.
    scratch: Box<[u8]>,
}

/// Bytes of the longest frame for which a queue with these buffers has room.
pub(super) fn room(buffers: &Buffers) -> usize {
    let rest = buffers
        .large
        .as_ref()
        .map_or(MAX_FRAME + 1, |large| large.payload_size() + HEADROOM);
    buffers.small.payload_size() + rest
}

/// What one read brought.
enum Frame {
    Received(Packet),
    Dropped(DropReason, u64),
    Empty,
    Gone,
}

impl TapRx {
    pub(super) fn new(fd: Arc<OwnedFd>, queue: u16, buffers: Buffers) -> TapRx {
        TapRx {
            fd,
            queue,
            buffers,
            fresh: PacketList::new(),
            large: None,
            scratch: vec![0; VNET_HDR_LEN + MAX_FRAME + 1].into_boxed_slice(),
        }
    }

    /// An empty small buffer whose data will start at the virtio-net header.
    fn small(&mut self, wanted: usize) -> Option<Packet> {
        if self.fresh.is_empty() {
            self.buffers
                .small
                .alloc_bulk(wanted.clamp(1, REFILL), &mut self.fresh);
        }
        let mut packet = self.fresh.pop_front()?;
        packet.reserve(HEADROOM - VNET_HDR_LEN);
        Some(packet)
    }

    /// Posts a large buffer, if there is one.
    fn post_large(&mut self) {
        if self.large.is_none()
            && let Some(pool) = &self.buffers.large
            && let Ok(mut packet) = pool.alloc()
        {
            packet.reserve(0);
            self.large = Some(packet);
        }
    }

    /// Reads one frame; `wanted` is how many more are.
    fn receive(&mut self, wanted: usize) -> Frame {
        let Some(mut packet) = self.small(wanted) else {
            return self.discard();
        };
        self.post_large();
        let first = packet.tailroom_mut();
        let first_len = first.len();
        let rest = self
            .large
            .as_mut()
            .map_or(&mut self.scratch[..], Packet::tailroom_mut);
        let capacity = first_len + rest.len();
        let mut parts = [IoSliceMut::new(first), IoSliceMut::new(rest)];
        let n = match retry(|| rustix::io::readv(&self.fd, &mut parts)) {
            Ok(n) => n,
            Err(e) => {
                // Not used; its place in front, where its cache lines are warm.
                self.fresh.push_front(packet);
                return failed(e);
            }
        };
        packet.extend(n.min(first_len));
        if n > first_len {
            // A longer frame would have been cut to exactly what was posted.
            if n == capacity || n > VNET_HDR_LEN + MAX_FRAME {
                return Frame::Dropped(DropReason::TooLong, 1);
            }
            match self.large.take() {
                Some(mut large) => {
                    large.extend(n - first_len);
                    packet.append_segment(large);
                }
                None => {
                    if !self.chain(&mut packet, n - first_len) {
                        return Frame::Dropped(
                            DropReason::NoBuffer,
                            wire_packets(packet.data(), n),
                        );
                    }
                }
            }
        }
        finish(packet, self.queue)
    }

    /// Copies the first `len` bytes of the scratch area to small buffers behind `packet`.
    fn chain(&self, packet: &mut Packet, len: usize) -> bool {
        let mut rest = &self.scratch[..len];
        let mut buffers = PacketList::new();
        while !rest.is_empty() {
            if buffers.is_empty() {
                let estimate = rest
                    .len()
                    .div_ceil(self.buffers.small.payload_size() + HEADROOM);
                self.buffers.small.alloc_bulk(estimate, &mut buffers);
            }
            let Some(mut segment) = buffers.pop_front() else {
                return false;
            };
            segment.reserve(0);
            let n = segment.tailroom_mut().len().min(rest.len());
            segment.append(&rest[..n]);
            packet.append_segment(segment);
            rest = &rest[n..];
        }
        true
    }

    /// Reads a frame for which there is no buffer.
    fn discard(&mut self) -> Frame {
        match retry(|| rustix::io::read(&self.fd, &mut self.scratch[..])) {
            Ok(n) => Frame::Dropped(DropReason::NoBuffer, wire_packets(&self.scratch, n)),
            Err(e) => failed(e),
        }
    }
}

/// Takes the virtio-net header off the frame and notes in the packet what it says.
fn finish(mut packet: Packet, queue: u16) -> Frame {
    if packet.len() < VNET_HDR_LEN + MIN_FRAME {
        return Frame::Dropped(DropReason::Runt, 1);
    }
    let header = match packet.data().first_chunk() {
        Some(bytes) => VnetHeader::from_bytes(bytes),
        None => return Frame::Dropped(DropReason::Runt, 1),
    };
    packet.pull_front(VNET_HDR_LEN);
    packet.set_queue(queue);
    match header.apply(&mut packet) {
        Ok(()) => Frame::Received(packet),
        Err(reason) => Frame::Dropped(reason, 1),
    }
}

/// Wire packets that a frame of `len` bytes (header included) stands for, of which only the start is at hand.
fn wire_packets(start: &[u8], len: usize) -> u64 {
    let Some(bytes) = start.first_chunk() else {
        return 1;
    };
    let header = VnetHeader::from_bytes(bytes);
    let payload = len.saturating_sub(VNET_HDR_LEN + usize::from(header.hdr_len.get()));
    match usize::from(header.gso_size.get()) {
        0 => 1,
        size => payload.div_ceil(size).max(1) as u64,
    }
}

fn failed(e: Errno) -> Frame {
    match e {
        // EBADFD: the device was removed. EIO: it is being removed.
        Errno::BADFD | Errno::IO => Frame::Gone,
        // Empty, or no memory at this moment: the queue stays readable, so that it will be tried again.
        _ => Frame::Empty,
    }
}

fn retry<T>(mut f: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        match f() {
            Err(Errno::INTR) => {}
            result => return result,
        }
    }
}

impl RxQueue for TapRx {
    fn poll(
        &mut self,
        budget: usize,
        _now: Time,
        out: &mut PacketList,
        drops: &mut dyn CountDrop,
    ) -> Polled {
        for done in 0..budget {
            match self.receive(budget - done) {
                Frame::Received(packet) => out.push_back(packet),
                Frame::Dropped(reason, packets) => drops.count_drop(reason, packets),
                Frame::Empty => {
                    return Polled {
                        more: false,
                        gone: false,
                    };
                }
                Frame::Gone => {
                    return Polled {
                        more: false,
                        gone: true,
                    };
                }
            }
        }
        Polled {
            more: true,
            gone: false,
        }
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.fd.as_fd())
    }
}
