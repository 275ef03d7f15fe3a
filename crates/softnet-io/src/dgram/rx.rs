//! Receiving datagrams, one a call.

use std::cell::RefCell;
use std::io::IoSliceMut;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvFlags, ReturnFlags, SocketAddrUnix, recvmsg};
use softnet::mem::{Packet, Pool};
use softnet::stats::DropReason;
use softnet::wire::MAX_FRAME;
use softnet_engine::rx::{Polled, Receive, RxQueue};

use super::Socket;
use crate::Buffers;
use crate::fresh::{Fresh, cost};

/// An Ethernet header.
const MIN_FRAME: usize = 14;

/// The receive queue of a port.
#[derive(Debug)]
pub struct DgramRx {
    socket: Arc<Socket>,
    /// The sender of the latest datagram, if it matters.
    peer: Option<SocketAddrUnix>,
    fresh: Fresh,
    /// The posted buffer.
    posted: Option<Packet>,
}

thread_local! {
    /// Area of the thread that polls, for what does not fit a small buffer.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl DgramRx {
    pub(super) fn new(socket: Arc<Socket>, buffers: &Buffers) -> DgramRx {
        DgramRx {
            socket,
            peer: None,
            fresh: Fresh::new(buffers.clone()),
            posted: None,
        }
    }

    pub(super) fn socket(&self) -> &Arc<Socket> {
        &self.socket
    }

    /// Receives a frame, or says why it was dropped. `None`: there is none.
    fn receive(&mut self, left: usize) -> Option<Result<Packet, DropReason>> {
        let mut posted = self.posted.take().or_else(|| self.fresh.small(left));
        SCRATCH.with_borrow_mut(|scratch| {
            scratch.resize(MAX_FRAME, 0);
            let room = posted.as_mut().map(Packet::tailroom_mut);
            let room = room.unwrap_or_default();
            let first = room.len();
            let mut parts = [IoSliceMut::new(room), IoSliceMut::new(scratch)];
            let received = loop {
                // Descriptors that come along are closed by the kernel.
                let mut none = RecvAncillaryBuffer::default();
                match recvmsg(self.socket.fd(), &mut parts, &mut none, RecvFlags::DONTWAIT) {
                    Err(Errno::INTR) => {}
                    received => break received,
                }
            };
            let Ok(received) = received else {
                self.posted = posted;
                return None;
            };
            if !self.socket.is_client
                && let Some(address) = received.address
                && let Ok(address) = SocketAddrUnix::try_from(address)
                && self.peer.as_ref() != Some(&address)
                && (address.path().is_some() || address.abstract_name().is_some())
            {
                self.socket.set_peer(address.clone());
                self.peer = Some(address);
            }
            let bytes = received.bytes;
            let Some(mut packet) = posted else {
                return Some(Err(DropReason::NoBuffer));
            };
            if bytes < MIN_FRAME {
                self.posted = Some(packet);
                return Some(Err(DropReason::Runt));
            }
            if received.flags.contains(ReturnFlags::TRUNC) || bytes > MAX_FRAME {
                self.posted = Some(packet);
                return Some(Err(DropReason::TooLong));
            }
            packet.extend(bytes.min(first));
            let rest = &scratch[..bytes.saturating_sub(first)];
            match self.fresh.append(&mut packet, rest) {
                true => Some(Ok(packet)),
                false => Some(Err(DropReason::NoBuffer)),
            }
        })
    }
}

impl RxQueue for DgramRx {
    fn poll(&mut self, rx: &mut Receive<'_>) -> Polled {
        let mut left = rx.budget;
        self.fresh.begin();
        while left > 0 {
            match self.receive(left) {
                Some(Ok(packet)) => {
                    left = left.saturating_sub(cost(&packet));
                    rx.push(packet);
                }
                Some(Err(reason)) => {
                    left -= 1;
                    rx.drop(reason);
                }
                None => return Polled::default(),
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

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.fd())
    }
}
