//! The helper as the process without rights sees it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::SendFlags;

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
}

/// The process, and the way to it.
#[derive(Debug)]
pub(super) struct Helper {
    /// None once it is gone.
    channel: Mutex<Option<Channel>>,
    child: Mutex<Child>,
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
    let helper = Helper {
        channel: Mutex::new(Some(channel)),
        child: Mutex::new(child),
    };
    HELPER.set(helper).map_err(|_| HelperError::Exists)
}

/// A process that serves the other end of a channel.
pub(super) fn spawn(mut command: Command) -> io::Result<(Channel, Child)> {
    let (ours, theirs) = Channel::pair()?;
    // A group of its own: what a terminal sends to the daemon's does not reach it.
    let child = command
        .stdin(Stdio::from(theirs.0))
        .stdout(Stdio::null())
        .process_group(0)
        .spawn()?;
    Ok((ours, child))
}

/// Has the helper make devices in this thread's network namespace, which this process entered after
/// the helper was started.
///
/// # Errors
/// [`AskError`].
pub fn make_devices_here() -> Result<(), AskError<NetnsError>> {
    let netns = Netns::current()?;
    super::ask(None, Home {}, &[netns.as_fd()]).map(drop)
}

/// Exit status of the helper, if there was one and it has; it is found out at a request, or here.
pub fn helper_is_gone() -> Option<ExitStatus> {
    let helper = helper()?;
    let ended = lock(&helper.child).try_wait().ok().flatten()?;
    lock(&helper.channel).take();
    Some(ended)
}

/// Has the helper end, and waits for that. What it has made for sockets in the file system is
/// removed.
pub fn stop_helper() {
    if let Some(helper) = helper() {
        lock(&helper.channel).take();
        // If it cannot be waited for, it has been already.
        let _ = lock(&helper.child).wait();
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
