//! Receiving frames from a stream: as much as there is in one call, then frame by frame out of it.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::RecvFlags;
use softnet::mem::Pool;
use softnet::stats::DropReason;
use softnet_engine::Link;
use softnet_engine::rx::{Polled, Receive, RxQueue};

use super::Deframer;
use super::life::Life;
use super::port::{Port, Seen};
use crate::Buffers;
use crate::fresh::{Fresh, cost};

/// An Ethernet header.
const MIN_FRAME: usize = 14;

/// The receive queue of a port.
#[derive(Debug)]
pub struct StreamRx {
    life: Arc<Life>,
    seen: Seen,
    input: Deframer,
    fresh: Fresh,
}

impl StreamRx {
    pub(super) fn new(life: Arc<Life>, buffers: &Buffers) -> StreamRx {
        StreamRx {
            life,
            seen: Seen::default(),
            input: Deframer::default(),
            fresh: Fresh::new(buffers.clone()),
        }
    }

    pub(super) fn port(&self) -> &Arc<Port> {
        &self.life.port
    }
}

impl Drop for StreamRx {
    fn drop(&mut self) {
        // For who goes on with the connection.
        let port = &self.life.port;
        if port.has(&self.seen) {
            port.parts().received = self.input.waiting().to_owned();
        }
    }
}

impl RxQueue for StreamRx {
    fn poll(&mut self, rx: &mut Receive<'_>) -> Polled {
        if self.life.port.follow(&mut self.seen) {
            let received = std::mem::take(&mut self.life.port.parts().received);
            self.input = Deframer::from(received);
        }
        let Some(connection) = self.seen.connection.clone() else {
            return Polled::default();
        };
        self.fresh.begin();
        let (mut left, mut drained) = (rx.budget, false);
        let lost = loop {
            if left == 0 {
                return Polled {
                    more: true,
                    ..Polled::default()
                };
            }
            match self.input.take() {
                Ok(Some(frame)) if frame.len() < MIN_FRAME => {
                    rx.drop(DropReason::Runt);
                    left -= 1;
                    continue;
                }
                Ok(Some(frame)) => {
                    let packet = self.fresh.copy(frame, 0, left);
                    left = left.saturating_sub(packet.as_ref().map_or(1, cost));
                    match packet {
                        Some(packet) => rx.push(packet),
                        None => rx.drop(DropReason::NoBuffer),
                    }
                    continue;
                }
                Ok(None) if drained => return Polled::default(),
                Ok(None) => {}
                Err(error) => break error.to_string(),
            }
            let room = self.input.room();
            let wanted = room.len();
            match rustix::net::recv(&connection, room, RecvFlags::DONTWAIT) {
                Ok((0, _)) => break "the other side closed the connection".to_owned(),
                Ok((_, bytes)) => {
                    self.input.received(bytes);
                    drained = bytes < wanted;
                }
                Err(Errno::AGAIN) => return Polled::default(),
                Err(Errno::INTR) => {}
                Err(error) => break std::io::Error::from(error).to_string(),
            }
        };
        self.seen.connection = None;
        self.life
            .port
            .lose(&connection, format!("not connected: {lost}"));
        Polled::default()
    }

    fn pools(&self) -> Vec<&Pool> {
        self.fresh.pools()
    }

    fn link(&self) -> Option<Arc<dyn Link>> {
        Some(self.life.port.clone())
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.life.port.readable.as_fd())
    }
}
