//! Sending frames on a packet socket: `sendmmsg`, many frames a call.
//!
//! The time of a call is up to the interface: over a veth the stack of the other end runs in it,
//! with its filter rules. So a queue whose batch has taken long is busy until its worker runs it
//! again, which charges its port for the time, and the frames of a call become fewer where they
//! take long. A socket whose send buffer is full (a NIC that is slower than what is sent) is busy
//! until it is writable again.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use softnet::mem::PacketList;
use softnet::stats::DropReason;
use softnet::tx::{Interest, RingFile, RingWaker, Sent, TxRing, Xmit};

use super::AfPacketLink;
use super::sys::{SEND_BATCH, SendBatch};
use crate::driver::down;

/// Time that the calls of one batch may take, as for a TAP device.
const LONGEST_BATCH: Duration = Duration::from_micros(200);
/// A call that takes longer sends fewer frames the next time.
const LONG_CALL: Duration = Duration::from_micros(100);
/// A call that takes less sends more the next time.
const SHORT_CALL: Duration = Duration::from_micros(40);

/// One transmit queue of a port.
#[derive(Debug)]
pub struct AfPacketTx {
    socket: Arc<OwnedFd>,
    link: Arc<AfPacketLink>,
    waker: Option<RingWaker>,
    batch: SendBatch,
    /// Frames of a call.
    frames: usize,
}

impl AfPacketTx {
    pub(super) fn new(socket: Arc<OwnedFd>, link: Arc<AfPacketLink>) -> AfPacketTx {
        AfPacketTx {
            socket,
            link,
            waker: None,
            batch: SendBatch::new(),
            frames: 4,
        }
    }

    pub(super) fn link(&self) -> &Arc<AfPacketLink> {
        &self.link
    }
}

impl TxRing for AfPacketTx {
    fn xmit(&mut self, packets: &mut PacketList, sent: &mut Sent) -> Xmit {
        if !self.link.is_up() {
            // The kernel would refuse each.
            return down(packets, sent);
        }
        // Freed together, after the last one was sent.
        let mut done = PacketList::new();
        let start = Instant::now();
        let mut before = start;
        while !packets.is_empty() {
            let some = packets.iter().take(self.frames);
            match self.batch.send(self.socket.as_fd(), some) {
                Ok(taken) => {
                    for packet in std::iter::from_fn(|| packets.pop_front()).take(taken) {
                        sent.count(&packet);
                        done.push_back(packet);
                    }
                }
                Err(Errno::INTR) => continue,
                // Its file tells when there is room.
                Err(Errno::AGAIN) => return Xmit::Busy,
                Err(error) => {
                    if let Some(packet) = packets.pop_front() {
                        sent.drop(reason(error), &packet);
                        done.push_back(packet);
                    }
                }
            }
            let now = Instant::now();
            let call = now - std::mem::replace(&mut before, now);
            if call >= LONG_CALL {
                self.frames = (self.frames / 2).max(1);
            } else if call < SHORT_CALL {
                self.frames = (self.frames * 2).min(SEND_BATCH);
            }
            if now - start >= LONGEST_BATCH && !packets.is_empty() {
                // Others have their turn first.
                if let Some(waker) = &self.waker {
                    waker.wake();
                }
                return Xmit::Busy;
            }
        }
        Xmit::Complete
    }

    fn bind(&mut self, waker: RingWaker) {
        self.waker = Some(waker);
    }

    fn file(&self) -> io::Result<Option<RingFile>> {
        Ok(Some(RingFile {
            fd: self.socket.try_clone()?,
            interest: Interest::Writable,
        }))
    }
}

fn reason(error: Errno) -> DropReason {
    match error {
        // ENXIO: the socket is bound to an interface that is gone.
        Errno::NETDOWN | Errno::NXIO | Errno::NODEV => DropReason::DeviceDown,
        // Longer than the interface's MTU, or in more pieces than a call takes.
        Errno::MSGSIZE => DropReason::TooLong,
        // EINVAL: the kernel does not accept the frame or its header. ENOBUFS: the interface's
        // qdisc is full. ENOMEM: the kernel has no memory for it.
        _ => DropReason::DriverRefused,
    }
}
