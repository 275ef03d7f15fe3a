//! The daemon's side of a capture: a thread of its own takes the copies and sends them to the
//! client. It waits for nobody but the client, and holds a bounded number of bytes for that.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno as SystemError;
use rustix::net::{SendFlags, send};
use softnet::mem::PacketList;
use softnet_engine::capture::{Capture, CaptureSpec, Filter};
use softnet_io::rights;
use softnet_rtnl::nl::{Client, Errno, Error};
use softnet_tc::Handle;

use super::{Request, Started, stream};
use crate::failure::chain;
use crate::log::{Level, log_at};
use crate::setup::Engine;

/// Bytes that are made ready to be sent at once.
const PIECE: usize = 256 * 1024;
/// Time between two looks for copies: right after there were some, and at most.
const SHORTEST: i64 = 1_000_000;
const LONGEST: i64 = 16_000_000;
/// Time for which a client that reads nothing is waited for at once.
const PATIENCE: i64 = 100_000_000;

/// Starts what a client asks for. Returns the answer, and the client's end of a stream socket.
pub(crate) fn start(
    engine: &Arc<Mutex<Engine>>,
    argument: &str,
    client: &Client,
) -> Result<(String, OwnedFd), Error> {
    let invalid = |text: String| Error::new(Errno::EINVAL).text(text);
    let failed = |text: String| Error::new(Errno::EIO).text(text);
    let request: Request =
        serde_json::from_str(argument).map_err(|error| invalid(error.to_string()))?;
    let class = request.class.as_deref().map(str::parse::<Handle>);
    let class = class
        .transpose()
        .map_err(|error| invalid(error.to_string()))?;
    let filter = Filter::parse(&request.filter).map_err(|error| invalid(error.to_string()))?;
    let (ours, theirs) = UnixStream::pair().map_err(|error| failed(error.to_string()))?;
    let capture = {
        let engine = engine.lock().unwrap_or_else(PoisonError::into_inner);
        let link = engine
            .link_named(&request.port)
            .map_err(|_| invalid(format!("there is no port {:?}", request.port)))?;
        if let Some(class) = class {
            let mut classes = engine.classes(link.index).into_iter();
            if !classes.any(|of| of.class == class || of.qdisc == class) {
                let text = format!("port {:?} has no class {class}", request.port);
                return Err(invalid(text));
            }
        }
        let spec = CaptureSpec {
            class,
            dropped: request.dropped,
            filter,
        };
        let capture = engine.capture(link.index, spec);
        let capture = capture.map_err(|error| invalid(chain(&error)))?;
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
        let since_1970 = since_1970.map_or(0, |since| since.as_nanos());
        let now = engine.clock().now().nanos();
        let base = u64::try_from(since_1970)
            .unwrap_or(u64::MAX)
            .saturating_sub(now);
        (capture, base)
    };
    let (capture, base) = capture;
    let snap = u32::try_from(capture.snap()).unwrap_or(u32::MAX);
    let started = Started {
        port: request.port.clone(),
        base,
        snap,
    };
    let text = serde_json::to_string(&started).map_err(|error| failed(error.to_string()))?;
    let serving = Serving {
        engine: Arc::downgrade(engine),
        capture,
    };
    let ours = OwnedFd::from(ours);
    thread::Builder::new()
        .name("capture".into())
        .spawn(move || serving.run(&ours))
        .map_err(|error| failed(error.to_string()))?;
    let Request {
        port,
        class,
        dropped,
        filter,
    } = request;
    let class = class.map_or_else(String::new, |class| format!(":{class}"));
    let dropped = if dropped { " --dropped" } else { "" };
    let space = if filter.is_empty() { "" } else { " " };
    let uid = client.uid;
    log_at(
        Level::Notice,
        format_args!("user {uid}: capture {port}{class}{dropped}{space}{filter}"),
    );
    Ok((text, theirs.into()))
}

/// A capture that is being sent. It ends with this.
struct Serving {
    engine: Weak<Mutex<Engine>>,
    capture: Arc<Capture>,
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.end();
    }
}

impl Serving {
    /// Nothing is captured from now on.
    fn end(&self) {
        if let Some(engine) = self.engine.upgrade() {
            let engine = engine.lock().unwrap_or_else(PoisonError::into_inner);
            // Refused only on a worker's thread.
            let _ = engine.end_capture(&self.capture);
        }
    }
}

impl Serving {
    /// Sends until the client closes its end, or the port is gone and everything is sent. Where
    /// the client only says that it has enough, it gets the numbers of packets.
    fn run(self, socket: &OwnedFd) {
        rights::capture_thread();
        let mut taken = PacketList::new();
        let (mut out, mut sent) = (Vec::new(), 0);
        let mut told = None;
        let mut pause = SHORTEST;
        // Times that it may take nothing once it has enough.
        let mut patience = None;
        loop {
            let ended = self.capture.has_ended();
            if sent == out.len() {
                out.clear();
                sent = 0;
                if taken.is_empty() {
                    taken = self.capture.take();
                }
                while out.len() < PIECE
                    && let Some(copy) = taken.pop_front()
                {
                    stream::put_packet(&mut out, copy.data());
                }
                let stats = self.capture.stats();
                if told != Some(stats) {
                    stream::put_stats(&mut out, stats);
                    told = Some(stats);
                }
            }
            let is_idle = out.is_empty();
            if is_idle && ended {
                return;
            }
            let (mut events, time) = match is_idle {
                true => (PollFlags::empty(), pause),
                false => (PollFlags::OUT, PATIENCE),
            };
            if patience.is_none() {
                events |= PollFlags::RDHUP;
            }
            let mut file = [PollFd::new(socket, events)];
            let time = Timespec {
                tv_sec: 0,
                tv_nsec: time,
            };
            // Interrupted: asked again.
            let _ = poll(&mut file, Some(&time));
            let events = file[0].revents();
            if events.intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL) {
                return;
            }
            if events.contains(PollFlags::RDHUP) && patience.is_none() {
                patience = Some(10_u32);
                self.end();
                taken = PacketList::new();
                drop(self.capture.take());
                continue;
            }
            if is_idle {
                pause = (2 * pause).min(LONGEST);
                continue;
            }
            pause = SHORTEST;
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            match send(socket, &out[sent..], flags) {
                Ok(length) => sent += length,
                Err(SystemError::AGAIN | SystemError::INTR) => match &mut patience {
                    Some(0) => return,
                    Some(left) => *left -= 1,
                    None => {}
                },
                Err(_) => return,
            }
        }
    }
}
