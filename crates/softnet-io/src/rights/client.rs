//! The helper as the process without rights sees it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    AddressFamily, SendFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType, connect,
    shutdown, socket_with,
};

use super::channel::Channel;
use super::request::{Reply, Requested};
use super::server::Home;
use super::{AskError, Performed, Privileged};
use crate::{Netns, NetnsError, NetnsSpec};

/// Time in which the helper answers: the kernel takes some 20 ms for a device.
const PATIENCE: Duration = Duration::from_secs(30);

static HELPER: OnceLock<Helper> = OnceLock::new();

/// The helper cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum HelperError {
    /// There is one already.
    #[error("there is a privileged helper already")]
    Exists,
    /// The process could not be made.
    #[error("cannot start the privileged helper (`--no-helper` goes without)")]
    Start(#[from] io::Error),
    /// None can be reached.
    #[error("cannot reach the privileged helper at {path}")]
    Connect {
        /// Where it listens.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// It does not serve this process.
    #[error("the privileged helper at {path} refuses: {text}")]
    Refused {
        /// Where it listens.
        path: PathBuf,
        /// Sentence of the helper.
        text: String,
    },
}

/// The process, and the way to it.
#[derive(Debug)]
pub(super) struct Helper {
    /// None once it is gone.
    channel: Mutex<Option<Channel>>,
    /// None: this process has not started it.
    child: Option<Mutex<Child>>,
}

/// The helper of this process, if it has one.
pub(super) fn helper() -> Option<&'static Helper> {
    HELPER.get()
}

/// Starts the helper: `command` is a program that calls [`serve`](super::serve) with its standard
/// input. From then on it performs what takes rights. Start it while this process has its rights,
/// and raise limits ([`raise_limits`](super::raise_limits)) before.
///
/// # Errors
/// [`HelperError`].
pub fn start_helper(command: Command) -> Result<(), HelperError> {
    if helper().is_some() {
        return Err(HelperError::Exists);
    }
    let (channel, child) = spawn(command)?;
    set(channel, Some(child))
}

/// Has the helper that listens at a path ([`attend`](fn@super::attend)) perform what takes rights
/// from then on. Waits for it to answer, for 30 s at most.
///
/// # Errors
/// [`HelperError`].
pub fn connect_helper(path: &Path) -> Result<(), HelperError> {
    if helper().is_some() {
        return Err(HelperError::Exists);
    }
    let failed = |source: io::Error| HelperError::Connect {
        path: path.to_owned(),
        source,
    };
    let (channel, first) = connected(path).map_err(failed)?;
    match first {
        Reply::Done(_) => set(channel, None),
        Reply::Refused { text, .. } => Err(HelperError::Refused {
            path: path.to_owned(),
            text,
        }),
        Reply::Files => Err(failed(io::ErrorKind::InvalidData.into())),
    }
}

/// A connection, and the first that its other end says.
fn connected(path: &Path) -> io::Result<(Channel, Reply)> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let socket = socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    let channel = Channel::from(socket);
    wait(&channel)?;
    let (first, _) = channel
        .receive::<Reply>()?
        .ok_or(io::ErrorKind::UnexpectedEof)?;
    Ok((channel, first))
}

fn set(channel: Channel, child: Option<Child>) -> Result<(), HelperError> {
    let helper = Helper {
        channel: Mutex::new(Some(channel)),
        child: child.map(Mutex::new),
    };
    HELPER.set(helper).map_err(|_| HelperError::Exists)
}

/// A process that serves the other end of a channel.
pub(super) fn spawn(command: Command) -> io::Result<(Channel, Child)> {
    let (ours, theirs) = Channel::pair()?;
    Ok((ours, spawn_with(command, theirs.0)?))
}

/// A process that serves a connection.
pub(super) fn spawn_with(mut command: Command, connection: OwnedFd) -> io::Result<Child> {
    // A group of its own: what a terminal sends to the daemon's does not reach it.
    command
        .stdin(Stdio::from(connection))
        .stdout(Stdio::null())
        .process_group(0)
        .spawn()
}

/// Has the helper make devices in this thread's network namespace, which this process entered after
/// the helper was started. A helper is asked for that before anything else.
///
/// # Errors
/// [`AskError`].
pub fn make_devices_here() -> Result<(), AskError<NetnsError>> {
    let netns = Netns::current()?;
    super::ask(None, Home {}, &[netns.as_fd()]).map(drop)
}

/// The end of the helper in words, if there was one and it has ended; it is found out at a request,
/// or here.
pub fn helper_is_gone() -> Option<String> {
    let helper = helper()?;
    if let Some(child) = &helper.child {
        let ended = lock(child).try_wait().ok().flatten()?;
        lock(&helper.channel).take();
        return Some(ended.to_string());
    }
    // A request that is under way finds out by itself.
    let mut channel = helper.channel.try_lock().ok()?;
    if channel.as_ref().is_some_and(|open| !is_closed(open)) {
        return None;
    }
    channel.take();
    Some("it closed the connection".to_owned())
}

/// True if the other end of a channel is closed.
pub(super) fn is_closed(channel: &Channel) -> bool {
    // Nothing is asked for but what is always told: that it is closed.
    let mut fds = [PollFd::new(channel, PollFlags::empty())];
    poll(&mut fds, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}

/// Has the helper end, or what serves this process of one that is a service of its own, and waits
/// for that. What it has made for sockets in the file system is removed.
pub fn stop_helper() {
    let Some(helper) = helper() else { return };
    let channel = lock(&helper.channel).take();
    if let Some(child) = &helper.child {
        drop(channel);
        // If it cannot be waited for, it has been already.
        let _ = lock(child).wait();
    } else if let Some(channel) = channel {
        // It reads the end, and closes the other way when it is done.
        let _ = shutdown(&channel, Shutdown::Write);
        let _ = wait(&channel);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Helper {
    pub(super) fn ask<P: Privileged>(
        &self,
        place: Option<&NetnsSpec>,
        operation: P,
        files: &[BorrowedFd<'_>],
    ) -> Performed<P::Answer, AskError<P::Error>> {
        let mut channel = lock(&self.channel);
        let open = channel.as_ref().ok_or(AskError::Gone)?;
        match exchange(open, place, operation, files) {
            Ok((Reply::Done(answer), files)) => {
                let answer = serde_json::from_value(answer);
                let answer = answer.map_err(|error| AskError::Channel(error.into()))?;
                Ok((answer, files))
            }
            Ok((Reply::Refused { text, errno }, _)) => Err(AskError::Refused { text, errno }),
            // What is too long was not sent.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                Err(AskError::Channel(error))
            }
            // Whatever it says later would be taken for the answer to something else.
            Ok((Reply::Files, _)) | Err(_) => {
                channel.take();
                Err(AskError::Gone)
            }
        }
    }

    pub(super) fn tell<P: Privileged>(&self, operation: P) {
        let channel = lock(&self.channel);
        let told = Requested {
            place: None,
            answer: false,
            request: operation.into(),
        };
        if let Some(channel) = channel.as_ref() {
            // Without room the helper finds out at its end.
            let _ = channel.send(&told, &[], SendFlags::DONTWAIT);
        }
    }
}

/// Sends a request and waits for all of its answer.
pub(super) fn exchange(
    channel: &Channel,
    place: Option<&NetnsSpec>,
    request: impl Into<super::Request>,
    files: &[BorrowedFd<'_>],
) -> io::Result<(Reply, Vec<OwnedFd>)> {
    let requested = Requested {
        place: place.cloned(),
        answer: true,
        request: request.into(),
    };
    channel.send(&requested, files, SendFlags::empty())?;
    let mut all = Vec::new();
    loop {
        wait(channel)?;
        let received = channel.receive::<Reply>()?;
        let (reply, files) = received.ok_or(io::ErrorKind::UnexpectedEof)?;
        all.extend(files);
        if !matches!(reply, Reply::Files) {
            return Ok((reply, all));
        }
    }
}

fn wait(channel: &Channel) -> io::Result<()> {
    let patience = Timespec {
        tv_sec: PATIENCE.as_secs() as i64,
        tv_nsec: 0,
    };
    loop {
        let mut fds = [PollFd::from_borrowed_fd(channel.as_fd(), PollFlags::IN)];
        match poll(&mut fds, Some(&patience)) {
            Ok(0) => return Err(io::Error::from(io::ErrorKind::TimedOut)),
            Ok(_) => return Ok(()),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
