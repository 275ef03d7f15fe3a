//! Reading frames from a TAP queue.
//!
//! Each frame is one `read` into a large buffer that stays posted. A frame that fits a small
//! buffer is copied to one (measured, that is cheaper than a `readv` into both); a longer one
//! keeps the large buffer, in one piece, and another is posted. When the pool of large buffers has
//! none (or there is no such pool), a scratch area takes its place, and frames are copied to as
//! many small buffers as it takes. When a frame finds no small buffer either, it is dropped: it
//! has been read, so that the queue never sticks.

use std::cell::RefCell;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;
use softnet::mem::{HEADROOM, Packet, Pool};
use softnet::stats::DropReason;
use softnet::wire::{MAX_FRAME, VNET_HDR_LEN, VnetHeader};
use softnet_engine::Link;
use softnet_engine::rx::{Polled, Receive, RxQueue};

use super::TapLink;
use crate::Buffers;
use crate::fresh::{Fresh, cost};

/// An Ethernet header.
const MIN_FRAME: usize = 14;

/// One receive queue of a TAP device.
#[derive(Debug)]
pub struct TapRx {
    fd: Arc<OwnedFd>,
    /// The queue's number, if the device has several.
    queue: Option<u16>,
    /// The device's interface, in one queue of each device.
    link: Option<Arc<TapLink>>,
    fresh: Fresh,
    /// The posted large buffer.
    large: Option<Packet>,
}

thread_local! {
    /// Area of the thread that polls, for while no large buffer can be had. Longer than any frame
    /// with its header, once it is made.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The longest frame that can be received with these buffers: what is read must not fill the
/// posted buffer, as a cut frame does.
pub(super) fn longest_frame(buffers: &Buffers) -> usize {
    match &buffers.large {
        Some(large) => (large.payload_size() + HEADROOM - VNET_HDR_LEN - 1).min(MAX_FRAME),
        None => MAX_FRAME,
    }
}

/// The result of one read.
enum Frame {
    Received(Packet),
    /// Counted as one packet: what its header says was not believed, or not looked at.
    Dropped(DropReason),
    Empty,
    Gone,
}

impl TapRx {
    pub(super) fn new(
        fd: Arc<OwnedFd>,
        queue: Option<u16>,
        buffers: Buffers,
        link: Option<Arc<TapLink>>,
    ) -> TapRx {
        TapRx {
            fd,
            queue,
            link,
            fresh: Fresh::new(buffers),
            large: None,
        }
    }

    /// The posted large buffer, or a fresh one, if there is one.
    fn take_large(&mut self) -> Option<Packet> {
        self.large.take().or_else(|| self.fresh.large())
    }

    /// Reads one frame; `wanted` is how many are, this one included.
    fn receive(&mut self, wanted: usize) -> Frame {
        let Some(mut large) = self.take_large() else {
            return SCRATCH.with_borrow_mut(|scratch| {
                scratch.resize(VNET_HDR_LEN + MAX_FRAME + 1, 0);
                match read(&self.fd, scratch) {
                    Ok(n) => self.copy(&scratch[..n], wanted),
                    Err(frame) => frame,
                }
            });
        };
        match read(&self.fd, large.tailroom_mut()) {
            Ok(n) if n > self.small_room() => {
                large.extend(n);
                finish(large, self.queue)
            }
            Ok(n) => {
                let frame = self.copy(&large.tailroom_mut()[..n], wanted);
                self.large = Some(large);
                frame
            }
            Err(frame) => {
                self.large = Some(large);
                frame
            }
        }
    }

    /// Longest frame, header included, that one small buffer takes.
    fn small_room(&self) -> usize {
        self.fresh.payload_size() + VNET_HDR_LEN
    }

    /// The frame in small buffers of its own.
    fn copy(&mut self, read: &[u8], wanted: usize) -> Frame {
        match self.fresh.copy(read, VNET_HDR_LEN, wanted) {
            Some(packet) => finish(packet, self.queue),
            None => Frame::Dropped(DropReason::NoBuffer),
        }
    }
}

/// The length of the frame that was read to `posted`; or why there is none.
fn read(fd: &OwnedFd, posted: &mut [u8]) -> Result<usize, Frame> {
    let room = posted.len();
    match rustix::io::retry_on_intr(|| rustix::io::read(fd, &mut *posted)) {
        // It may have been cut.
        Ok(n) if n == room => Err(Frame::Dropped(DropReason::TooLong)),
        Ok(n) => Ok(n),
        // EBADFD: the device was removed. EIO: it is being removed.
        Err(Errno::BADFD | Errno::IO) => Err(Frame::Gone),
        // Empty, or no memory at this moment: the queue stays readable then, and is tried again.
        Err(_) => Err(Frame::Empty),
    }
}

/// Takes the virtio-net header off the frame and notes in the packet what it says.
fn finish(mut packet: Packet, queue: Option<u16>) -> Frame {
    if packet.len() < VNET_HDR_LEN + MIN_FRAME {
        return Frame::Dropped(DropReason::Runt);
    }
    let header = match packet.data().first_chunk() {
        Some(bytes) => VnetHeader::from_bytes(bytes),
        None => return Frame::Dropped(DropReason::Runt),
    };
    packet.pull_front(VNET_HDR_LEN);
    packet.set_queue(queue);
    match packet.apply(&header) {
        Ok(()) => Frame::Received(packet),
        Err(reason) => Frame::Dropped(reason),
    }
}

impl RxQueue for TapRx {
    fn poll(&mut self, rx: &mut Receive<'_>) -> Polled {
        let mut left = rx.budget;
        self.fresh.begin();
        while left > 0 {
            match self.receive(left) {
                Frame::Received(packet) => {
                    left = left.saturating_sub(cost(&packet));
                    rx.push(packet);
                }
                Frame::Dropped(reason) => {
                    left -= 1;
                    rx.drop(reason);
                }
                Frame::Empty => return Polled::default(),
                Frame::Gone => {
                    return Polled {
                        gone: true,
                        ..Polled::default()
                    };
                }
            }
        }
        Polled {
            more: true,
            ..Polled::default()
        }
    }

    fn pools(&self) -> Vec<&Pool> {
        self.fresh.pools()
    }

    fn link(&self) -> Option<Arc<dyn Link>> {
        Some(self.link.clone()?)
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.fd.as_fd())
    }
}
