//! A client of the daemon's control socket: asks it for what rtnetlink has no message for.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags,
    SocketAddrUnix, SocketFlags, SocketType, connect, recvmsg, send, socket_with,
};
use softnet_rtnl::nl::{
    Head, Messages, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR, NLMSG_HDRLEN, Operation, Request,
    Requests,
};
use softnet_rtnl::server::OPERATION;

use crate::failure::{Exit, Failure};
use crate::socket;

/// The longest datagram that the daemon sends.
const DATAGRAM: usize = 256 * 1024;
/// `NLMSGERR_ATTR_MSG`.
const TEXT: u16 = 1;

/// Where the daemon listens, on the command line.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Reach {
    /// Socket on which the daemon listens, if not the default one
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

impl Reach {
    /// The socket `path`, unless another one is named.
    pub(crate) fn at(mut self, path: Option<PathBuf>) -> Reach {
        self.socket = self.socket.or(path);
        self
    }
}

/// A connection to the daemon.
#[derive(Debug)]
pub(crate) struct Daemon {
    socket: OwnedFd,
    path: PathBuf,
}

/// Connects to the daemon that listens there.
pub(crate) fn reach(path: &Path) -> io::Result<OwnedFd> {
    let address = SocketAddrUnix::new(path)?;
    let socket = socket_with(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?;
    connect(&socket, &address)?;
    Ok(socket)
}

/// The message when [`reach`] fails.
pub(crate) fn no_daemon(path: &Path) -> String {
    format!("no daemon can be reached at {}", path.display())
}

impl Daemon {
    /// Connects to the daemon.
    pub(crate) fn connect(options: &Reach) -> Result<Daemon, Failure> {
        let path = options.socket.clone().unwrap_or_else(socket::default_path);
        match reach(&path) {
            Ok(socket) => Ok(Daemon { socket, path }),
            Err(why) => Err(Failure::because(Exit::Failure, no_daemon(&path), &why)),
        }
    }

    /// The connection, after an operation for which the daemon has released it.
    pub(crate) fn into_socket(self) -> OwnedFd {
        self.socket
    }

    /// True if the daemon has closed the connection.
    pub(crate) fn is_closed(&self) -> bool {
        // Nothing is asked for but what is always told: that it is closed.
        let mut file = [PollFd::new(&self.socket, PollFlags::empty())];
        poll(&mut file, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    }

    /// Asks for an operation, and waits for its text. A refusal of `EINVAL` is of what was asked
    /// for, as the exit code says.
    pub(crate) fn ask(&self, operation: Operation, argument: &str) -> Result<String, Failure> {
        let (text, _) = self.exchange(operation, argument)?;
        Ok(text)
    }

    /// As [`ask`](Daemon::ask), with the file that comes along, if one does.
    pub(crate) fn exchange(
        &self,
        operation: Operation,
        argument: &str,
    ) -> Result<(String, Option<OwnedFd>), Failure> {
        let payload = [&(operation as u32).to_ne_bytes(), argument.as_bytes()].concat();
        let head = Head {
            kind: OPERATION,
            flags: NLM_F_REQUEST,
            seq: 1,
            pid: 0,
        };
        let mut request = Messages::new();
        // It fits: arguments are words of ours.
        let _ = request.message(head, payload.as_slice(), |_| {});
        let lost = |why: io::Error| {
            let what = format!("the connection to {} failed", self.path.display());
            Failure::because(Exit::Failure, what, &why)
        };
        retry_on_intr(|| send(&self.socket, request.as_bytes(), SendFlags::NOSIGNAL))
            .map_err(|why| lost(why.into()))?;
        let (mut text, mut file) = (Vec::new(), None);
        let mut buffer = vec![0; DATAGRAM];
        loop {
            let length = self
                .receive(&mut buffer, &mut file)
                .map_err(|why| lost(why.into()))?;
            if length == 0 {
                return Err(Failure::new(Exit::Failure, "the daemon has ended"));
            }
            for message in Requests::new(buffer.get(..length).unwrap_or_default()) {
                match message.kind {
                    OPERATION => text.extend_from_slice(message.payload()),
                    NLMSG_ERROR | NLMSG_DONE => {
                        refused(&message)?;
                        // The last part is padded.
                        let end = text.iter().rposition(|&byte| byte != 0);
                        text.truncate(end.map_or(0, |end| end + 1));
                        let text = String::from_utf8(text).map_err(|why| {
                            Failure::because(Exit::Failure, "the daemon's answer is no text", &why)
                        });
                        return Ok((text?, file));
                    }
                    // Events of groups are not asked for.
                    _ => {}
                }
            }
        }
    }
}

impl Daemon {
    /// Receives a datagram, and the file that comes with it.
    fn receive(&self, buffer: &mut [u8], file: &mut Option<OwnedFd>) -> Result<usize, Errno> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received = retry_on_intr(|| {
            let mut parts = [IoSliceMut::new(&mut *buffer)];
            recvmsg(
                &self.socket,
                &mut parts,
                &mut control,
                RecvFlags::CMSG_CLOEXEC,
            )
        })?;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(mut files) = message {
                *file = files.next().or_else(|| file.take());
            }
        }
        Ok(received.bytes)
    }
}

/// The error in a message, with its text.
fn refused(message: &Request<'_>) -> Result<(), Failure> {
    let errno = message
        .payload()
        .first_chunk()
        .map_or(0, |&bytes| i32::from_ne_bytes(bytes));
    if errno == 0 {
        return Ok(());
    }
    let errno = errno.wrapping_neg();
    // `struct nlmsgerr` repeats the request's header; the end of a dump does not.
    let attributes = match message.kind {
        NLMSG_ERROR => message.attr_iter::<(i32, [i32; NLMSG_HDRLEN / 4])>(),
        _ => message.attr_iter::<i32>(),
    };
    let mut attributes = attributes.into_iter().flatten();
    let text = attributes.find(|attribute| attribute.kind() == TEXT);
    let text = text.and_then(|attribute| attribute.str().ok().map(str::to_owned));
    let text = text.unwrap_or_else(|| io::Error::from_raw_os_error(errno).to_string());
    let exit = if errno == libc::EINVAL {
        Exit::Config
    } else {
        Exit::Failure
    };
    Err(Failure::new(exit, text))
}
