//! The file that is received: a thread reads it, and hands packets to the receive queue.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::time::Timespec;
use softnet::mem::{Packet, Pool};
use softnet::stats::DropReason;
use softnet::wire::MAX_FRAME;
use softnet_engine::rx::{Polled, Receive, RxQueue};
use softnet_engine::{DeviceDrops, Link, LinkState};

use super::{Frame, Pace, PacketFile, PcapError};
use crate::Buffers;
use crate::fresh::{Fresh, cost};
use crate::rights;

/// Packets that wait for the worker.
const WAITING: usize = 256;
/// An Ethernet header.
const MIN_FRAME: usize = 14;

/// Events of a file that is read, shared by thread and queue.
#[derive(Debug)]
struct Shared {
    stop: OwnedFd,
    /// Packets wait.
    ready: OwnedFd,
    /// There is room for more, if the thread waits for that.
    room: OwnedFd,
    waits_for_room: AtomicBool,
    changed: OwnedFd,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    status: String,
    ended: bool,
}

impl Shared {
    fn end(&self, status: String) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        *state = State {
            status,
            ended: true,
        };
        drop(state);
        notify(&self.changed);
    }
}

fn event() -> io::Result<OwnedFd> {
    Ok(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
}

fn notify(event: &OwnedFd) {
    // It fails only where it is readable already.
    let _ = rustix::io::write(event, &1_u64.to_ne_bytes());
}

fn drain(event: &OwnedFd) {
    let _ = rustix::io::read(event, &mut [0; 8]);
}

/// Waits until one of the files is readable, or the time is over. False: `stop` is.
fn wait(stop: &OwnedFd, other: Option<BorrowedFd<'_>>, timeout: Option<Duration>) -> bool {
    let timeout = timeout.map(|timeout| Timespec {
        tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    });
    let other = other.unwrap_or_else(|| stop.as_fd());
    let mut files = [
        PollFd::new(stop, PollFlags::IN),
        PollFd::from_borrowed_fd(other, PollFlags::IN),
    ];
    let _ = poll(&mut files, timeout.as_ref());
    files[0].revents().is_empty()
}

/// A file whose reading ends when the port is closed: a pipe may say nothing for ever.
struct Input {
    file: File,
    shared: Arc<Shared>,
}

impl Read for Input {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        if !wait(&self.shared.stop, Some(self.file.as_fd()), None) {
            return Err(io::Error::other("the port is closed"));
        }
        self.file.read(bytes)
    }
}

/// A file that is read, and its thread, which ends with the value.
#[derive(Debug)]
pub(super) struct Reader {
    shared: Arc<Shared>,
    packets: Mutex<Receiver<Result<Packet, DropReason>>>,
    thread: Option<JoinHandle<()>>,
}

impl Reader {
    pub(super) fn start(path: &Path, pace: Pace, buffers: &Buffers) -> Result<Reader, PcapError> {
        let open = |source| PcapError::Open {
            path: path.to_owned(),
            what: "read",
            source,
        };
        let file = match path.to_str() {
            Some("-") => io::stdin().as_fd().try_clone_to_owned().map(File::from),
            _ => super::open::open(path, false),
        };
        let file = file.map_err(open)?;
        if file.metadata().is_ok_and(|file| file.is_dir()) {
            return Err(open(io::ErrorKind::IsADirectory.into()));
        }
        let shared = Arc::new(Shared {
            stop: event()?,
            ready: event()?,
            room: event()?,
            waits_for_room: AtomicBool::new(false),
            changed: event()?,
            state: Mutex::new(State {
                status: "reading".to_owned(),
                ended: false,
            }),
        });
        let input = Input {
            file,
            shared: shared.clone(),
        };
        let (to, packets) = sync_channel(WAITING);
        let mut pump = Pump {
            shared: shared.clone(),
            fresh: Fresh::new(buffers.clone()),
            to,
            pace,
            began: None,
        };
        let thread = std::thread::Builder::new()
            .name("pcap read".to_owned())
            .spawn(move || {
                rights::port_thread();
                pump.run(input)
            })?;
        Ok(Reader {
            shared,
            packets: Mutex::new(packets),
            thread: Some(thread),
        })
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        notify(&self.shared.stop);
        if let Some(thread) = self.thread.take() {
            // It does not panic.
            let _ = thread.join();
        }
    }
}

/// The thread's part.
struct Pump {
    shared: Arc<Shared>,
    fresh: Fresh,
    to: SyncSender<Result<Packet, DropReason>>,
    pace: Pace,
    /// When the first packet was received, and when it was captured.
    began: Option<(Instant, u64)>,
}

impl Pump {
    fn run(&mut self, input: Input) {
        let result = self.read(input);
        let status = match result {
            Ok(count) => format!("{count} packets, to the end of the file"),
            Err((count, error)) => format!("{count} packets, then an error: {error}"),
        };
        self.shared.end(status);
        notify(&self.shared.ready);
    }

    /// Reads all of a file. Returns how many packets it has.
    fn read(&mut self, input: impl Read) -> Result<u64, (u64, String)> {
        let file = PacketFile::unpacked(input);
        let mut file = file.map_err(|error| (0, error.to_string()))?;
        loop {
            let count = file.count();
            match file.next_frame() {
                Ok(Some(frame)) if self.take(&frame) => {}
                Ok(Some(_)) => return Err((count, "the port is closed".to_owned())),
                Ok(None) => return Ok(count),
                Err(error) => return Err((count, error.to_string())),
            }
        }
    }

    /// Hands a packet over when its time has come. False: the port is closed.
    fn take(&mut self, frame: &Frame<'_>) -> bool {
        if self.pace == Pace::Captured {
            let now = Instant::now();
            let (start, first) = *self.began.get_or_insert((now, frame.time));
            let after = Duration::from_nanos(frame.time.saturating_sub(first));
            let left = start
                .checked_add(after)
                .map(|due| due.saturating_duration_since(now));
            if left.is_none_or(|left| !left.is_zero()) && !wait(&self.shared.stop, None, left) {
                return false;
            }
        }
        self.fresh.begin();
        let mut item = loop {
            match packet(frame, &mut self.fresh) {
                // Others have them all for now.
                Err(DropReason::NoBuffer) => {
                    let again = Duration::from_millis(1);
                    if !wait(&self.shared.stop, None, Some(again)) {
                        return false;
                    }
                }
                item => break item,
            }
        };
        loop {
            match self.to.try_send(item) {
                Ok(()) => {
                    notify(&self.shared.ready);
                    return true;
                }
                Err(TrySendError::Disconnected(_)) => return false,
                Err(TrySendError::Full(back)) => item = back,
            }
            drain(&self.shared.room);
            // Both sides write before they look: SeqCst.
            if !self.shared.waits_for_room.swap(true, Ordering::SeqCst) {
                continue;
            }
            let room = Some(self.shared.room.as_fd());
            if !wait(&self.shared.stop, room, Some(Duration::from_millis(50))) {
                return false;
            }
        }
    }
}

/// A packet of its length on the wire; what was not captured of it is zeros.
fn packet(frame: &Frame<'_>, fresh: &mut Fresh) -> Result<Packet, DropReason> {
    const ZEROS: [u8; 2048] = [0; 2048];
    let (header, data) = frame.ethernet().ok_or(DropReason::BadHeader)?;
    let cut = frame.data.len() - data.len();
    let len = frame.len as usize - cut + header.map_or(0, |header| header.len());
    if len > MAX_FRAME {
        return Err(DropReason::TooLong);
    }
    if len < MIN_FRAME {
        return Err(DropReason::Runt);
    }
    let mut packet = match header {
        None => fresh.copy(data, 0, 1),
        Some(header) => fresh.copy(&header, 0, 1).and_then(|mut packet| {
            let room = packet.tailroom_mut().len().min(data.len());
            let whole = packet.append(&data[..room]) && fresh.append(&mut packet, &data[room..]);
            whole.then_some(packet)
        }),
    }
    .ok_or(DropReason::NoBuffer)?;
    let mut missing = len.saturating_sub(packet.len());
    while missing > 0 {
        let zeros = &ZEROS[..missing.min(ZEROS.len())];
        missing -= zeros.len();
        if !fresh.append(&mut packet, zeros) {
            return Err(DropReason::NoBuffer);
        }
    }
    Ok(packet)
}

/// The receive queue of a port.
#[derive(Debug)]
pub struct PcapRx {
    reader: Option<Arc<Reader>>,
    link: Option<Arc<PcapLink>>,
    pools: Buffers,
    /// Never readable, for a port that receives nothing.
    never: OwnedFd,
}

/// The state of a port: it is up while it is read or written.
#[derive(Debug)]
struct PcapLink {
    reader: Arc<Reader>,
    is_written: bool,
}

impl PcapRx {
    pub(super) fn new(
        reader: Option<Arc<Reader>>,
        is_written: bool,
        buffers: &Buffers,
    ) -> io::Result<PcapRx> {
        let link = reader
            .clone()
            .map(|reader| Arc::new(PcapLink { reader, is_written }));
        Ok(PcapRx {
            reader,
            link,
            pools: buffers.clone(),
            never: event()?,
        })
    }
}

impl Link for PcapLink {
    fn dropped(&self) -> DeviceDrops {
        DeviceDrops::default()
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.reader.shared.changed.as_fd())
    }

    fn status(&self) -> Option<String> {
        let state = self.reader.shared.state.lock();
        Some(state.unwrap_or_else(PoisonError::into_inner).status.clone())
    }

    fn state(&self) -> LinkState {
        drain(&self.reader.shared.changed);
        let state = self.reader.shared.state.lock();
        let ended = state.unwrap_or_else(PoisonError::into_inner).ended;
        LinkState {
            up: self.is_written || !ended,
            ..LinkState::default()
        }
    }
}

impl RxQueue for PcapRx {
    fn poll(&mut self, rx: &mut Receive<'_>) -> Polled {
        let Some(reader) = &self.reader else {
            return Polled::default();
        };
        // Before the look: what comes later makes it readable again.
        drain(&reader.shared.ready);
        // Nobody else locks it.
        let packets = reader.packets.lock();
        let packets = packets.unwrap_or_else(PoisonError::into_inner);
        let mut left = rx.budget;
        while left > 0 {
            match packets.try_recv() {
                Ok(Ok(packet)) => {
                    left = left.saturating_sub(cost(&packet));
                    rx.push(packet);
                }
                Ok(Err(reason)) => {
                    left -= 1;
                    rx.drop(reason);
                }
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => break,
            }
        }
        if reader.shared.waits_for_room.load(Ordering::SeqCst)
            && reader.shared.waits_for_room.swap(false, Ordering::SeqCst)
        {
            notify(&reader.shared.room);
        }
        Polled {
            more: left == 0,
            ..Polled::default()
        }
    }

    fn pools(&self) -> Vec<&Pool> {
        let Buffers { small, large } = &self.pools;
        std::iter::once(small).chain(large).collect()
    }

    fn link(&self) -> Option<Arc<dyn Link>> {
        Some(self.link.clone()?)
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.reader {
            Some(reader) => Some(reader.shared.ready.as_fd()),
            None => Some(self.never.as_fd()),
        }
    }
}
