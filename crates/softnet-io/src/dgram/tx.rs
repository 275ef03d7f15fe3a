//! Sending datagrams, one a call.

use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, SocketAddrUnix, sendmsg_addr};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use softnet::mem::{Packet, PacketList};
use softnet::stats::DropReason;
use softnet::tx::{Interest, RingFile, Sent, TxRing, Xmit};

use super::Socket;

/// Segments of a frame that are sent without allocating.
const SEGMENTS: usize = 66;
/// Time after which a full peer is tried again.
const FIRST_WAIT: Duration = Duration::from_micros(100);
const LONGEST_WAIT: Duration = Duration::from_millis(20);
/// A client's greeting.
const GREETING: &[u8] = b"VFKT";

/// The transmit queue of a port.
#[derive(Debug)]
pub struct DgramTx {
    socket: Arc<Socket>,
    serial: u64,
    peer: Option<SocketAddrUnix>,
    /// The other side knows this one's address.
    greeted: bool,
    /// Ends the wait for a full peer.
    timer: OwnedFd,
    wait: Duration,
}

impl DgramTx {
    pub(super) fn new(socket: Arc<Socket>) -> io::Result<DgramTx> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let mut tx = DgramTx {
            serial: 0,
            peer: socket.peer(),
            greeted: !socket.is_client,
            socket,
            timer: timerfd_create(TimerfdClockId::Monotonic, flags)?,
            wait: FIRST_WAIT,
        };
        tx.greet();
        Ok(tx)
    }

    fn greet(&mut self) {
        if !self.greeted && self.send(&[IoSlice::new(GREETING)]).is_ok() {
            self.greeted = true;
        }
    }

    fn send(&self, parts: &[IoSlice<'_>]) -> Result<usize, Errno> {
        let peer = self.peer.as_ref().ok_or(Errno::DESTADDRREQ)?;
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        loop {
            let mut none = SendAncillaryBuffer::default();
            match sendmsg_addr(self.socket.fd(), peer, parts, &mut none, flags) {
                Err(Errno::INTR) => {}
                sent => return sent,
            }
        }
    }

    fn send_packet(&self, packet: &Packet) -> Result<usize, Errno> {
        let segments = packet.segments().count();
        if segments > SEGMENTS {
            let parts: Vec<_> = packet.segments().map(IoSlice::new).collect();
            return self.send(&parts);
        }
        let mut parts = [IoSlice::new(&[]); SEGMENTS];
        for (part, segment) in parts.iter_mut().zip(packet.segments()) {
            *part = IoSlice::new(segment);
        }
        self.send(&parts[..segments])
    }

    /// Has the queue tried again after a while. False if no timer can be set.
    fn try_later(&mut self) -> bool {
        let timer = Itimerspec {
            it_interval: Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            },
            it_value: Timespec {
                tv_sec: 0,
                tv_nsec: self.wait.subsec_nanos().into(),
            },
        };
        self.wait = (2 * self.wait).min(LONGEST_WAIT);
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &timer).is_ok()
    }
}

impl TxRing for DgramTx {
    fn xmit(&mut self, packets: &mut PacketList, sent: &mut Sent) -> Xmit {
        let serial = self.socket.serial.load(Ordering::Relaxed);
        if serial != self.serial {
            (self.serial, self.peer) = (serial, self.socket.peer());
        }
        // Freed together.
        let mut done = PacketList::new();
        self.greet();
        while let Some(packet) = packets.pop_front() {
            match self.send_packet(&packet) {
                Ok(_) => {
                    self.wait = FIRST_WAIT;
                    sent.count(&packet);
                }
                // The peer's queue is full.
                Err(Errno::AGAIN) if self.try_later() => {
                    packets.push_front(packet);
                    return Xmit::Busy;
                }
                Err(error) => {
                    let reason = reason(error);
                    self.greeted &= !(self.socket.is_client && reason == DropReason::DeviceDown);
                    sent.drop(reason, &packet);
                }
            }
            done.push_back(packet);
        }
        Xmit::Complete
    }

    fn file(&self) -> io::Result<Option<RingFile>> {
        Ok(Some(RingFile {
            fd: self.timer.try_clone()?,
            interest: Interest::Readable,
        }))
    }
}

fn reason(error: Errno) -> DropReason {
    match error {
        // Nobody has sent anything yet, or nobody has the socket any more.
        Errno::DESTADDRREQ | Errno::CONNREFUSED | Errno::NOENT | Errno::CONNRESET => {
            DropReason::DeviceDown
        }
        Errno::MSGSIZE => DropReason::TooLong,
        _ => DropReason::DriverRefused,
    }
}
