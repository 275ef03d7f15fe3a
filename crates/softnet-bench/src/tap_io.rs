//! Experiment `tap-io`: plain `read` and `write` against io_uring on a TAP queue.
//!
//! Three situations, for frames of 64, 1500 and 65,535 bytes:
//! - `write`: frames into the kernel, which drops them (an Ethernet type that nobody wants): the cost of the call.
//! - `drain`: frames out of a queue that was filled before, until it is empty: the best case for batches.
//! - `live`: a sender on another CPU, flat out or paced; the reader sleeps when the queue is empty.
//!
//! io_uring is at its best settings: one issuer, deferred task work, fixed file, fixed buffers, batches of 32. Variants take turns
//! within each round, so that a change of the machine's speed meets all of them.

use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType};
use rustix::thread::CpuSet;
use serde_json::{Value, json};
use softnet::pool::{Pool, PoolConfig};
use softnet::rx::RxQueue;
use softnet_io::{Buffers, Netns, Tap, TapConfig};

mod uring;

use crate::report::{Collector, OURS};
use uring::Ring;

/// How often each variant takes its turn.
const ROUNDS: usize = 7;
/// Frames per io_uring submission, and buffers that are used in turn.
const BATCH: usize = 32;
/// The virtio-net header in front of each frame.
const HEADER: usize = 12;
/// The longest frame for an MTU of 65,521, the longest that a TAP device takes.
const LARGE: usize = 65_535;
/// What fits into a small buffer: the header and 1792 bytes.
const FIRST: usize = HEADER + 1792;
/// A buffer for one frame, header included.
const BUFFER: usize = 68 * 1024;

/// How frames are moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Variant {
    /// As the driver does: `write`; `read` into a large buffer, which a large frame keeps and a small one is copied out of.
    Plain,
    /// `readv` into a small buffer and a large one.
    Readv,
    /// A batch of fixed-buffer operations per system call; the reader sleeps in `poll`.
    Uring,
    /// As many reads as the batch are always outstanding; the reader sleeps in io_uring.
    UringWait,
}

impl Variant {
    /// As in the report.
    fn name(self) -> &'static str {
        match self {
            Variant::Plain => OURS,
            Variant::Readv => "readv",
            Variant::Uring => "io_uring",
            Variant::UringWait => "io_uring-wait",
        }
    }
}

/// One line of the result.
#[derive(Clone, Copy, Debug)]
struct Case {
    situation: &'static str,
    frame: usize,
    /// Frames per second that the live sender aims at; 0 is flat out.
    rate: u64,
    variant: Variant,
}

/// What one turn measured.
#[derive(Clone, Copy, Debug)]
struct Turn {
    frames: u64,
    wall: Duration,
    cpu: Duration,
    offered: u64,
}

/// Runs the experiment; `seconds` is the time measured per row, over all rounds.
///
/// # Errors
/// If the machine does not let us make a namespace, a TAP device or an io_uring.
pub(crate) fn run(seconds: f64) -> io::Result<Value> {
    let slice = Duration::from_secs_f64((seconds / ROUNDS as f64).max(0.01));
    // A thread of its own, as it is bound to a CPU.
    let turns = std::thread::scope(|scope| scope.spawn(|| measure(slice)).join())
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
    Ok(report(&turns))
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for frame in [64, 1500, LARGE] {
        let mut add = |situation, rate, variants: &[Variant]| {
            cases.extend(variants.iter().map(|&variant| Case {
                situation,
                frame,
                rate,
                variant,
            }));
        };
        use Variant::{Plain, Readv, Uring, UringWait};
        add("write", 0, &[Plain, Uring]);
        add("drain", 0, &[Plain, Readv, Uring]);
        add("live", 0, &[Plain, Readv, Uring, UringWait]);
        let paced = if frame == LARGE { 5_000 } else { 100_000 };
        add("live", paced, &[Plain, Readv, Uring, UringWait]);
    }
    cases
}

fn measure(slice: Duration) -> io::Result<Vec<(Case, Vec<Turn>)>> {
    pin(0);
    let netns = Netns::anonymous().map_err(io::Error::other)?;
    let mut results: Vec<_> = cases().into_iter().map(|case| (case, Vec::new())).collect();
    for round in 0..ROUNDS {
        for (number, (case, turns)) in results.iter_mut().enumerate() {
            // A name of its own: the files of a dropped io_uring are closed some time later.
            let device = Device::open(&netns, &format!("b{round}x{number}"), case.frame)?;
            let mut mover = Mover::new(device.fd(), *case)?;
            turns.push(match case.situation {
                "write" => device.write(&mut mover, *case, slice)?,
                "drain" => device.drain(&mut mover, *case, slice)?,
                _ => device.live(&mut mover, *case, slice)?,
            });
        }
    }
    Ok(results)
}

/// Binds the thread to one of the CPUs it may use, if there are several.
fn pin(nth: usize) {
    let Ok(allowed) = rustix::thread::sched_getaffinity(None) else {
        return;
    };
    let mut cpus = (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu));
    if let Some(cpu) = cpus.nth(nth) {
        let mut one = CpuSet::new();
        one.set(cpu);
        // Not essential: without it the scheduler chooses.
        let _ = rustix::thread::sched_setaffinity(None, &one);
    }
}

struct Device {
    tap: Tap,
    sender: OwnedFd,
    ring: usize,
}

impl Device {
    fn open(netns: &Netns, name: &str, frame: usize) -> io::Result<Device> {
        let pool = PoolConfig {
            buffers: 1,
            buffer_size: 2048,
        };
        let buffers = Buffers {
            small: Pool::new(pool).map_err(io::Error::other)?,
            large: None,
        };
        let ring = if frame == LARGE { 256 } else { 4096 };
        let config = TapConfig {
            netns: Some(netns.clone()),
            mtu: 65_521,
            offload: false,
            tx_queue_len: ring as u32,
            ..TapConfig::new(name)
        };
        let tap = Tap::open(&config, &buffers).map_err(io::Error::other)?;
        let sender = netns
            .run(|| packet_socket(tap.index))
            .map_err(io::Error::other)??;
        Ok(Device { tap, sender, ring })
    }

    fn fd(&self) -> BorrowedFd<'_> {
        // The driver's queue always has a file.
        self.tap.rx[0].fd().unwrap_or_else(|| self.sender.as_fd())
    }

    fn write(&self, mover: &mut Mover, case: Case, slice: Duration) -> io::Result<Turn> {
        let stop = Stopwatch::start();
        let mut frames = 0;
        while stop.wall() < slice {
            frames += mover.write(self.fd(), HEADER + case.frame)?;
        }
        Ok(stop.turn(frames, frames))
    }

    fn drain(&self, mover: &mut Mover, case: Case, slice: Duration) -> io::Result<Turn> {
        let mut total = Turn {
            frames: 0,
            wall: Duration::ZERO,
            cpu: Duration::ZERO,
            offered: 0,
        };
        let bytes = frame(case.frame);
        while total.wall < slice {
            for _ in 0..self.ring {
                total.offered += u64::from(send(&self.sender, &bytes)?);
            }
            let stop = Stopwatch::start();
            let frames = mover.read_until_empty(self.fd())?;
            let turn = stop.turn(frames, 0);
            total.frames += turn.frames;
            total.wall += turn.wall;
            total.cpu += turn.cpu;
        }
        Ok(total)
    }

    fn live(&self, mover: &mut Mover, case: Case, slice: Duration) -> io::Result<Turn> {
        if case.variant == Variant::UringWait {
            // io_uring waits for a frame only if the file may block.
            let flags = rustix::fs::fcntl_getfl(self.fd())? - OFlags::NONBLOCK;
            rustix::fs::fcntl_setfl(self.fd(), flags)?;
        }
        // Closed to end the sender.
        let (running, end) = UnixStream::pair()?;
        end.set_nonblocking(true)?;
        std::thread::scope(|scope| {
            let sender = scope.spawn(|| {
                pin(1);
                send_live(&self.sender, case, &end)
            });
            let result = (|| {
                // Until the sender is at its speed.
                mover.read_for(self.fd(), slice / 10)?;
                let stop = Stopwatch::start();
                let frames = mover.read_for(self.fd(), slice)?;
                Ok::<_, io::Error>(stop.turn(frames, 0))
            })();
            running.shutdown(Shutdown::Both)?;
            let rate = sender
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            let mut turn = result?;
            turn.offered = (rate * turn.wall.as_secs_f64()) as u64;
            Ok(turn)
        })
    }
}

/// Sends until `end` is closed; returns frames per second.
fn send_live(socket: &OwnedFd, case: Case, end: &UnixStream) -> io::Result<f64> {
    let bytes = frame(case.frame);
    let start = Instant::now();
    let mut sent = 0u64;
    loop {
        if sent.is_multiple_of(64) {
            match rustix::io::read(end, &mut [0u8; 1][..]) {
                Err(Errno::AGAIN) => {}
                _ => return Ok(sent as f64 / start.elapsed().as_secs_f64()),
            }
        }
        if let Some(nanos) = (sent * 1_000_000_000).checked_div(case.rate) {
            let due = start + Duration::from_nanos(nanos);
            while Instant::now() < due {
                std::hint::spin_loop();
            }
        }
        send(socket, &bytes)?;
        sent += 1;
    }
}

/// A packet socket whose frames go straight to the device.
fn packet_socket(index: u32) -> io::Result<OwnedFd> {
    uring::bypass_socket(
        rustix::net::socket_with(
            AddressFamily::PACKET,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            None,
        )?,
        index,
    )
}

/// Sends one frame; false if the device's queue was full.
fn send(socket: &OwnedFd, bytes: &[u8]) -> io::Result<bool> {
    match rustix::net::send(socket, bytes, SendFlags::empty()) {
        Ok(_) => Ok(true),
        Err(Errno::NOBUFS | Errno::AGAIN) => Ok(false),
        Err(e) => Err(e.into()),
    }
}

/// A broadcast frame of a type for experiments (IEEE 802 local experimental Ethertype 1).
fn frame(len: usize) -> Vec<u8> {
    let mut frame = vec![0; len];
    frame[..6].fill(0xff);
    frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 2]);
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    frame
}

/// Wall and CPU time of this thread.
struct Stopwatch {
    wall: Instant,
    cpu: Duration,
}

impl Stopwatch {
    fn start() -> Stopwatch {
        Stopwatch {
            cpu: cpu_time(),
            wall: Instant::now(),
        }
    }

    fn wall(&self) -> Duration {
        self.wall.elapsed()
    }

    fn turn(&self, frames: u64, offered: u64) -> Turn {
        let wall = self.wall.elapsed();
        Turn {
            frames,
            wall,
            cpu: cpu_time().saturating_sub(self.cpu),
            offered,
        }
    }
}

fn cpu_time() -> Duration {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(
        t.tv_sec.unsigned_abs(),
        u32::try_from(t.tv_nsec).unwrap_or(0),
    )
}

/// One way of moving frames.
struct Mover {
    variant: Variant,
    /// [`BATCH`] buffers of [`BUFFER`] bytes; used in turn, as a pool's would be.
    buffers: Vec<u8>,
    turn: usize,
    /// What the driver reads into, and what replaces it.
    posted: Vec<u8>,
    spare: Vec<Vec<u8>>,
    ring: Option<Ring>,
}

impl Mover {
    fn new(fd: BorrowedFd<'_>, case: Case) -> io::Result<Mover> {
        let mut buffers = vec![0; BATCH * BUFFER];
        for buffer in buffers.chunks_exact_mut(BUFFER) {
            buffer[HEADER..HEADER + case.frame].copy_from_slice(&frame(case.frame));
        }
        let ring = match case.variant {
            Variant::Uring | Variant::UringWait => Some(Ring::new(
                fd,
                BATCH,
                BUFFER,
                case.frame,
                case.variant == Variant::UringWait,
            )?),
            Variant::Plain | Variant::Readv => None,
        };
        let posted = vec![0; BUFFER];
        let spare = vec![posted.clone(); BATCH];
        Ok(Mover {
            variant: case.variant,
            buffers,
            turn: 0,
            posted,
            spare,
            ring,
        })
    }

    fn buffer(&mut self) -> &mut [u8] {
        self.turn = (self.turn + 1) % BATCH;
        &mut self.buffers[self.turn * BUFFER..][..BUFFER]
    }

    /// Writes a batch.
    fn write(&mut self, fd: BorrowedFd<'_>, len: usize) -> io::Result<u64> {
        if let Some(ring) = &mut self.ring {
            return ring.write_batch(len);
        }
        for _ in 0..BATCH {
            let n = rustix::io::write(fd, &self.buffer()[..len])?;
            if n != len {
                return Err(io::Error::other("a frame was cut"));
            }
        }
        Ok(BATCH as u64)
    }

    /// Reads one frame; false if there is none.
    fn read_one(&mut self, fd: BorrowedFd<'_>) -> io::Result<bool> {
        let result = if self.variant == Variant::Readv {
            let (first, rest) = self.buffer().split_at_mut(FIRST);
            let mut parts = [io::IoSliceMut::new(first), io::IoSliceMut::new(rest)];
            rustix::io::readv(fd, &mut parts)
        } else {
            rustix::io::read(fd, &mut self.posted[..])
        };
        match result {
            Ok(n) if self.variant == Variant::Plain => {
                self.keep(n);
                Ok(true)
            }
            Ok(_) => Ok(true),
            Err(Errno::AGAIN) => Ok(false),
            Err(e) => Err(e.into()),
        }
    }

    /// Takes the frame out of the posted buffer, or the buffer with it.
    fn keep(&mut self, len: usize) {
        if len <= FIRST {
            self.turn = (self.turn + 1) % BATCH;
            let small = &mut self.buffers[self.turn * BUFFER..][..len];
            small.copy_from_slice(&self.posted[..len]);
        } else {
            self.turn = (self.turn + 1) % self.spare.len();
            std::mem::swap(&mut self.posted, &mut self.spare[self.turn]);
        }
    }

    fn read_until_empty(&mut self, fd: BorrowedFd<'_>) -> io::Result<u64> {
        let mut frames = 0;
        match &mut self.ring {
            Some(ring) => loop {
                let got = ring.read_batch(BATCH)?;
                frames += got;
                if got < BATCH as u64 {
                    return Ok(frames);
                }
            },
            None => {
                while self.read_one(fd)? {
                    frames += 1;
                }
                Ok(frames)
            }
        }
    }

    /// Reads what comes, asleep when nothing does.
    fn read_for(&mut self, fd: BorrowedFd<'_>, time: Duration) -> io::Result<u64> {
        let start = Instant::now();
        let mut frames = 0;
        // Small after a quiet time, as each read of an empty queue costs too.
        let mut batch = 4;
        while start.elapsed() < time {
            match &mut self.ring {
                Some(ring) if self.variant == Variant::UringWait => frames += ring.wait()?,
                Some(ring) => {
                    let got = ring.read_batch(batch)?;
                    frames += got;
                    if got == batch as u64 {
                        batch = BATCH.min(batch * 2);
                        continue;
                    }
                    batch = 4;
                    sleep(fd)?;
                }
                None => {
                    // 64: the driver's budget, after which the clock is read.
                    let mut got = 0;
                    while got < 64 && self.read_one(fd)? {
                        got += 1;
                    }
                    frames += got;
                    if got < 64 {
                        sleep(fd)?;
                    }
                }
            }
        }
        Ok(frames)
    }
}

/// Until the queue is readable, at most 100 ms.
fn sleep(fd: BorrowedFd<'_>) -> io::Result<()> {
    let timeout = rustix::time::Timespec {
        tv_sec: 0,
        tv_nsec: 100_000_000,
    };
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    rustix::event::poll(&mut fds, Some(&timeout))?;
    Ok(())
}

fn report(results: &[(Case, Vec<Turn>)]) -> Value {
    let mut rows = Collector::default();
    for (case, turns) in results {
        let mut params = vec![
            ("situation", json!(case.situation)),
            ("frame", json!(case.frame)),
        ];
        if case.rate > 0 {
            params.push(("rate", json!(case.rate)));
        }
        for turn in turns {
            let (seconds, frames) = (turn.wall.as_secs_f64(), turn.frames as f64);
            let mut fields = vec![
                ("mpps", frames / seconds / 1e6),
                ("ns_per_packet", seconds / frames * 1e9),
                // Of the thread that reads or writes alone.
                ("cpu_s_per_mpkt", turn.cpu.as_secs_f64() / frames * 1e6),
            ];
            if case.situation == "live" {
                fields.push(("offered_mpps", turn.offered as f64 / seconds / 1e6));
            }
            rows.add(case.variant.name(), &params, &fields);
        }
    }
    rows.report("tap-io", &["mpps", "cpu_s_per_mpkt"])
}
