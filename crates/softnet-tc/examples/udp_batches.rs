//! A UDP sender for many threads, as a QUIC stack wants it: datagrams of one size leave as one
//! (`UDP_SEGMENT`), up to 64 of those in one system call (`sendmmsg`), each with the time at which
//! it is to leave (`SO_TXTIME`, for a network device whose qdisc is the kernel's `fq` or `etf`).
//! Run it with `cargo run --release -p softnet-tc --example udp_batches`.

use std::io::{self, IoSlice};
use std::mem::{size_of, size_of_val, zeroed};
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::time::Duration;

use softnet::mem::{Packet, PacketList};
use softnet::stats::DropReason;
use softnet::time::{Clock, Time};
use softnet::tx::{RingWaker, Sender, Sent, TxRing, Xmit};

/// Messages of a system call.
const MESSAGES: usize = 64;
/// Datagrams of a message (the kernel's `UDP_MAX_SEGMENTS` is 64 at first), and their bytes.
const SEGMENTS: usize = 64;
const BYTES: usize = 60_000;

/// Room for two control messages, aligned as they are.
#[repr(C, align(8))]
struct Control([u8; 64]);

/// The driver.
struct Udp {
    socket: UdpSocket,
    /// The kernel takes several datagrams as one.
    segments: bool,
    /// The kernel takes departure times; its clock says this at Softnet's time zero.
    origin: Option<u64>,
    waker: Option<RingWaker>,
}

impl Udp {
    /// A driver for a connected socket. `clock` is the sender's.
    fn new(socket: UdpSocket, clock: &Clock) -> Udp {
        let config = libc::sock_txtime {
            clockid: libc::CLOCK_MONOTONIC,
            flags: 0,
        };
        // SAFETY: the option's value is a structure of this size, which outlives the call.
        let done = unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_TXTIME,
                (&raw const config).cast(),
                size_of_val(&config) as u32,
            )
        };
        let mut now = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: the pointer is to a structure of that type.
        unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
        let now = now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64;
        Udp {
            socket,
            segments: true,
            origin: (done == 0).then(|| now - clock.now().nanos()),
            waker: None,
        }
    }

    /// Length of the longest run of packets that can be one message: of one size and time, but
    /// that the last may be shorter.
    fn run(&self, packets: &[Packet]) -> usize {
        let first = &packets[0];
        let (size, time) = (first.len(), first.departure_time());
        let most = if self.segments && size != 0 {
            SEGMENTS.min(BYTES / size).max(1)
        } else {
            1
        };
        let mut run = 1;
        for packet in packets.iter().take(most).skip(1) {
            if packet.len() > size || packet.is_empty() || packet.departure_time() != time {
                break;
            }
            run += 1;
            if packet.len() < size {
                break;
            }
        }
        run
    }

    /// Sends runs of packets, a message each. Returns how many messages were sent.
    fn send(&self, runs: &[&[Packet]]) -> io::Result<usize> {
        let mut data = Vec::with_capacity(runs.len());
        for run in runs {
            let slices = run.iter().map(|packet| IoSlice::new(packet.data()));
            data.push(slices.collect::<Vec<_>>());
        }
        let mut controls: Vec<Control> = runs.iter().map(|_| Control([0; 64])).collect();
        let mut messages = Vec::with_capacity(runs.len());
        for ((run, data), control) in runs.iter().zip(&data).zip(&mut controls) {
            // SAFETY: all zeros is a message of nothing.
            let mut message: libc::mmsghdr = unsafe { zeroed() };
            let header = &mut message.msg_hdr;
            // An `IoSlice` is an `iovec`, by its documentation.
            header.msg_iov = data.as_ptr().cast_mut().cast();
            header.msg_iovlen = data.len() as _;
            header.msg_control = (&raw mut control.0).cast();
            let mut used = 0;
            if run.len() > 1 {
                let size = run[0].len() as u16;
                used += put(
                    control,
                    used,
                    (libc::SOL_UDP, libc::UDP_SEGMENT),
                    &size.to_ne_bytes(),
                );
            }
            if let (Some(origin), Some(time)) = (self.origin, run[0].departure_time()) {
                let time = origin.saturating_add(time.nanos()).to_ne_bytes();
                used += put(control, used, (libc::SOL_SOCKET, libc::SCM_TXTIME), &time);
            }
            header.msg_controllen = used as _;
            messages.push(message);
        }
        let (file, count) = (self.socket.as_raw_fd(), messages.len() as u32);
        // SAFETY: the messages point to vectors and control messages that outlive the call, with
        // their lengths.
        let sent =
            unsafe { libc::sendmmsg(file, messages.as_mut_ptr(), count, libc::MSG_DONTWAIT as _) };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }
}

/// Writes a control message at `at`, which is a multiple of 8. Returns the bytes it takes.
fn put(control: &mut Control, at: usize, (level, kind): (i32, i32), value: &[u8]) -> usize {
    const HEADER: usize = size_of::<libc::cmsghdr>();
    let header = libc::cmsghdr {
        cmsg_len: (HEADER + value.len()) as _,
        cmsg_level: level,
        cmsg_type: kind,
    };
    // SAFETY: a control message's header is three numbers without padding between them.
    let bytes: [u8; HEADER] = unsafe { std::mem::transmute(header) };
    control.0[at..at + HEADER].copy_from_slice(&bytes);
    control.0[at + HEADER..][..value.len()].copy_from_slice(value);
    (HEADER + value.len()).next_multiple_of(8)
}

impl TxRing for Udp {
    fn xmit(&mut self, packets: &mut PacketList, sent: &mut Sent) -> Xmit {
        let mut batch: Vec<Packet> = packets.take().into_iter().collect();
        let mut done = 0;
        while done < batch.len() {
            let mut runs = Vec::new();
            let mut next = done;
            while next < batch.len() && runs.len() < MESSAGES {
                let run = self.run(&batch[next..]);
                runs.push(&batch[next..next + run]);
                next += run;
            }
            let first = runs[0].len();
            match self.send(&runs) {
                Ok(messages) => {
                    for packet in runs[..messages].iter().copied().flatten() {
                        sent.count(packet);
                        done += 1;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    packets.extend(batch.drain(done..));
                    // A socket calls nobody, so this asks to be tried again. (An engine's driver
                    // has a file that is watched: `TxRing::file`.)
                    if let Some(waker) = &self.waker {
                        waker.wake();
                    }
                    return Xmit::Busy;
                }
                // An old kernel, or a device without checksums: one by one from now on.
                Err(_) if first > 1 => self.segments = false,
                Err(_) => {
                    sent.drop(DropReason::DriverRefused, &batch[done]);
                    done += 1;
                }
            }
        }
        Xmit::Complete
    }

    fn bind(&mut self, waker: RingWaker) {
        self.waker = Some(waker);
    }
}

pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    let receiver = UdpSocket::bind("127.0.0.1:0")?;
    receiver.set_read_timeout(Some(Duration::from_secs(10)))?;
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    socket.connect(receiver.local_addr()?)?;
    let clock = Clock::monotonic();
    let udp = Udp::new(socket, &clock);
    let out = Sender::builder().clock(clock.clone()).start(udp)?;
    std::thread::scope(|scope| -> io::Result<()> {
        for thread in 0..4 {
            let (out, clock) = (&out, &clock);
            scope.spawn(move || {
                let packets = (0..16).filter_map(|number| {
                    let mut packet = out.packet(&[thread; 1200]).ok()?;
                    // Each millisecond four of them.
                    let after = Duration::from_millis(number / 4);
                    packet.set_departure_time(Time::max(clock.now(), Time(1)) + after);
                    Some(packet)
                });
                out.transmit(packets.collect::<PacketList>());
            });
        }
        let mut each = [0; 4];
        for _ in 0..4 * 16 {
            let mut datagram = [0; 2000];
            let len = receiver.recv(&mut datagram)?;
            assert_eq!(len, 1200);
            each[usize::from(datagram[0])] += 1;
        }
        assert_eq!(each, [16; 4]);
        Ok(())
    })?;
    let device = out.device().clone();
    out.stop(Duration::from_secs(5));
    println!("{:?}", device.stats().distributions.batch);
    Ok(())
}
