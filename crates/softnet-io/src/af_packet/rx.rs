//! Receiving frames from a packet socket: `recvmmsg`, many frames a call.
//!
//! Each frame goes to a small buffer, which is enough for most, and what does not fit there to a
//! large one behind it: nothing is copied. When the pool of large buffers has none (or there is no
//! such pool), one frame is received at a time, and a scratch area takes the large buffer's place,
//! from where it is copied to as many small buffers as it takes. When a frame finds no small
//! buffer it is received all the same, and dropped, so that the queue never sticks.
//!
//! A call may bring frames that stand for more packets than the poll may take. They wait for the
//! next poll.

use std::cell::RefCell;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;
use softnet::mem::{HEADROOM, Packet, PacketList, Pool};
use softnet::stats::DropReason;
use softnet::wire::{MAX_FRAME, VNET_HDR_LEN, VnetHeader};
use softnet_engine::Link;
use softnet_engine::rx::{Polled, Receive, RxQueue};

use super::AfPacketLink;
use super::sys::{HEADER_LEN, Message, RECEIVE_BATCH, ReceiveBatch};
use crate::Buffers;
use crate::fresh::{Fresh, cost};

/// An Ethernet header.
const MIN_FRAME: usize = 14;
/// A VLAN tag.
const TAG: usize = 4;
/// Frames to ask for where few come: with more than one, a call that brings one frame tells that
/// there is no other.
const FEWEST: usize = 4;

/// One receive queue of a port.
#[derive(Debug)]
pub struct AfPacketRx {
    socket: Arc<OwnedFd>,
    /// The queue's number, if the port has several.
    queue: Option<u16>,
    /// The interface, in one queue of each port.
    link: Option<Arc<AfPacketLink>>,
    fresh: Fresh,
    /// Posted small buffers.
    small: Vec<Packet>,
    /// Large buffers, each for what does not fit the small one of its place.
    large: Vec<Option<Packet>>,
    batch: ReceiveBatch,
    /// Frames that were received and not taken yet.
    ready: PacketList,
    /// Frames to ask for at once.
    frames: usize,
    /// Packets that the latest frame stood for.
    each: usize,
    /// Frames that this poll dropped.
    dropped: usize,
}

thread_local! {
    /// Area of the thread that polls, for while no large buffer can be had.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Why a call brought nothing.
enum Nothing {
    Empty,
    /// A frame was lost.
    Dropped(DropReason),
}

impl AfPacketRx {
    pub(super) fn new(
        socket: Arc<OwnedFd>,
        queue: Option<u16>,
        buffers: &Buffers,
        link: Option<Arc<AfPacketLink>>,
    ) -> AfPacketRx {
        AfPacketRx {
            socket,
            queue,
            link,
            fresh: Fresh::new(buffers.clone()),
            small: Vec::with_capacity(RECEIVE_BATCH),
            large: (0..RECEIVE_BATCH).map(|_| None).collect(),
            batch: ReceiveBatch::new(),
            ready: PacketList::new(),
            frames: FEWEST,
            each: 1,
            dropped: 0,
        }
    }

    /// Posts up to `wanted` buffers. Returns how many are there.
    fn post(&mut self, wanted: usize) -> usize {
        while self.small.len() < wanted
            && let Some(mut packet) = self.fresh.small(wanted - self.small.len())
        {
            packet.reserve(HEADROOM - HEADER_LEN);
            self.small.push(packet);
        }
        let posted = wanted.min(self.small.len());
        for place in 0..posted {
            let large = &mut self.large[place];
            if large.is_none() {
                *large = self.fresh.large();
            }
            if large.is_none() {
                return place;
            }
        }
        posted
    }

    /// Receives up to `wanted` frames into `ready`. True: that was all.
    fn receive(&mut self, wanted: usize, rx: &mut Receive<'_>) -> Result<bool, Nothing> {
        let posted = self.post(wanted);
        if posted == 0 {
            return self.receive_one();
        }
        let (small, large) = (&mut self.small[..posted], &mut self.large[..posted]);
        let buffers = small.iter_mut().zip(large).map(|(small, large)| {
            let large = large.as_mut().map(Packet::tailroom_mut);
            [small.tailroom_mut(), large.unwrap_or_default()]
        });
        let received = self.batch.receive(self.socket.as_fd(), buffers);
        let received = received.map_err(nothing)?;
        for (place, mut packet) in self.small.drain(..received).enumerate() {
            let message = self.batch.message(place);
            let room = packet.tailroom_mut().len();
            packet.extend(message.len.min(room));
            if message.len > room
                && let Some(mut rest) = self.large[place].take()
            {
                rest.extend(message.len - room);
                packet.append_segment(rest);
            }
            match finish(packet, &message, self.queue) {
                Ok(packet) => self.ready.push_back(packet),
                Err(reason) => {
                    rx.drop(reason);
                    self.dropped += 1;
                }
            }
        }
        Ok(received < posted)
    }

    /// Receives one frame without a large buffer.
    fn receive_one(&mut self) -> Result<bool, Nothing> {
        let packet = self.small.pop();
        SCRATCH.with_borrow_mut(|scratch| {
            scratch.resize(MAX_FRAME + HEADER_LEN + TAG, 0);
            let Some(mut packet) = packet else {
                // Received, so that the queue does not stick.
                let buffers = [[&mut scratch[..], &mut []]];
                self.batch
                    .receive(self.socket.as_fd(), buffers.into_iter())
                    .map_err(nothing)?;
                return Err(Nothing::Dropped(DropReason::NoBuffer));
            };
            let room = packet.tailroom_mut().len();
            let buffers = [[packet.tailroom_mut(), &mut scratch[..]]];
            let received = self.batch.receive(self.socket.as_fd(), buffers.into_iter());
            if let Err(error) = received {
                self.small.push(packet);
                return Err(nothing(error));
            }
            let message = self.batch.message(0);
            packet.extend(message.len.min(room));
            let rest = message.len.saturating_sub(room).min(scratch.len());
            if !self.fresh.append(&mut packet, &scratch[..rest]) {
                return Err(Nothing::Dropped(DropReason::NoBuffer));
            }
            match finish(packet, &message, self.queue) {
                Ok(packet) => self.ready.push_back(packet),
                Err(reason) => return Err(Nothing::Dropped(reason)),
            }
            Ok(false)
        })
    }

    /// Frames to ask for, of those that may come: for each of them a buffer is posted.
    fn wanted(&self, left: usize) -> usize {
        left.div_ceil(self.each).clamp(1, self.frames)
    }
}

fn nothing(error: Errno) -> Nothing {
    match error {
        // The kernel could not describe the frame's offload, and threw it away.
        Errno::INVAL => Nothing::Dropped(DropReason::BadGso),
        // Empty; or the interface went down, of which the link tells.
        _ => Nothing::Empty,
    }
}

/// Takes the virtio-net header off the frame and notes in the packet what it says. Puts back the
/// VLAN tag that the kernel took off.
fn finish(
    mut packet: Packet,
    message: &Message,
    queue: Option<u16>,
) -> Result<Packet, DropReason> {
    if message.cut {
        return Err(DropReason::TooLong);
    }
    if packet.len() < HEADER_LEN + MIN_FRAME {
        return Err(DropReason::Runt);
    }
    let mut bytes = [0; VNET_HDR_LEN];
    bytes[..HEADER_LEN].copy_from_slice(&packet.data()[..HEADER_LEN]);
    let mut header = VnetHeader::from_bytes(&bytes);
    packet.pull_front(HEADER_LEN);
    if let Some([tpid, tci]) = message.tag {
        // The header took as much.
        if packet.push_front(TAG).is_none() {
            return Err(DropReason::BadHeader);
        }
        let frame = packet.data_mut();
        frame.copy_within(TAG..TAG + 12, 0);
        frame[12..14].copy_from_slice(&tpid.to_be_bytes());
        frame[14..16].copy_from_slice(&tci.to_be_bytes());
        // Positions, if it has some.
        for position in [&mut header.hdr_len, &mut header.csum_start] {
            if position.get() != 0 {
                position.set(position.get().saturating_add(TAG as u16));
            }
        }
    }
    packet.set_queue(queue);
    packet.apply(&header)?;
    Ok(packet)
}

impl RxQueue for AfPacketRx {
    fn poll(&mut self, rx: &mut Receive<'_>) -> Polled {
        let mut left = rx.budget;
        let mut empty = false;
        self.fresh.begin();
        loop {
            while left > 0
                && let Some(packet) = self.ready.pop_front()
            {
                left = left.saturating_sub(cost(&packet));
                self.each = (packet.wire_packets() as usize).max(1);
                rx.push(packet);
            }
            if left == 0 {
                return Polled {
                    more: true,
                    ..Polled::default()
                };
            }
            if empty {
                return Polled::default();
            }
            let wanted = self.wanted(left);
            match self.receive(wanted, rx) {
                Ok(true) => {
                    empty = true;
                    // As many buffers as are needed stay posted.
                    self.frames = (self.frames / 2).max(FEWEST);
                    self.small.truncate(self.frames);
                    self.large[self.frames..].fill_with(|| None);
                }
                Ok(false) => self.frames = (2 * self.frames).min(RECEIVE_BATCH),
                Err(Nothing::Empty) => empty = true,
                Err(Nothing::Dropped(reason)) => {
                    rx.drop(reason);
                    self.dropped += 1;
                }
            }
            left = left.saturating_sub(std::mem::take(&mut self.dropped));
        }
    }

    fn pools(&self) -> Vec<&Pool> {
        self.fresh.pools()
    }

    fn link(&self) -> Option<Arc<dyn Link>> {
        Some(self.link.clone()?)
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }
}
