//! A connection to a front end: whole messages in, answers out.

use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendFlags, recvmsg, send,
};

use super::budget::Budget;
use super::message::{HEADER_LEN, Header, MAX_FILES, MessageError, Request};

/// Why no message comes.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReceiveError {
    /// The front end is gone.
    #[error("the front end closed the connection")]
    Closed,
    /// Somebody wants this thread's attention.
    #[error("interrupted")]
    Woken,
    /// It is none.
    #[error(transparent)]
    Message(#[from] MessageError),
    /// More files than any message has; some were lost.
    #[error("a message with too many files")]
    TooManyFiles,
    /// Files were lost because this process may not have more.
    #[error("no file descriptors are left for those of a message (RLIMIT_NOFILE)")]
    NoFiles,
    /// A call failed.
    #[error("the connection failed")]
    Io(#[from] Errno),
}

/// A connected socket.
#[derive(Debug)]
pub(super) struct Connection<'a> {
    socket: OwnedFd,
    budget: &'a mut Budget,
    /// The part of the next message that has come: a wait may be interrupted anywhere.
    bytes: Vec<u8>,
    files: Vec<OwnedFd>,
}

impl Connection<'_> {
    pub(super) fn new(socket: OwnedFd, budget: &mut Budget) -> Connection<'_> {
        Connection {
            socket,
            budget,
            bytes: Vec::new(),
            files: Vec::new(),
        }
    }

    /// The socket, for another process; none in the middle of a message.
    pub(super) fn into_socket(self) -> Option<OwnedFd> {
        (self.bytes.is_empty() && self.files.is_empty()).then_some(self.socket)
    }

    /// The next message. Waits for it, and for `wake` to become readable.
    pub(super) fn receive(
        &mut self,
        wake: BorrowedFd<'_>,
    ) -> Result<(Header, Request), ReceiveError> {
        self.fill(HEADER_LEN, wake)?;
        let mut header = [0; HEADER_LEN];
        header.copy_from_slice(&self.bytes[..HEADER_LEN]);
        let header = Header::parse(header)?;
        self.fill(HEADER_LEN + header.payload_len(), wake)?;
        let files = std::mem::take(&mut self.files);
        let request = Request::parse(&header, &self.bytes[HEADER_LEN..], files)?;
        self.bytes.clear();
        Ok((header, request))
    }

    /// Reads until `len` bytes of the message are there, and no further.
    fn fill(&mut self, len: usize, wake: BorrowedFd<'_>) -> Result<(), ReceiveError> {
        while self.bytes.len() < len {
            let readable = PollFlags::IN;
            let mut fds = [
                PollFd::from_borrowed_fd(wake, readable),
                PollFd::new(&self.socket, readable),
            ];
            match poll(&mut fds, None) {
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            }
            if fds[0].revents().is_empty()
                && let Err(wait) = self.budget.take(Instant::now())
            {
                let wait = Timespec {
                    tv_sec: 0,
                    tv_nsec: wait.subsec_nanos().into(),
                };
                // Interrupted, it is asked again.
                let _ = poll(&mut fds[..1], Some(&wait));
                if fds[0].revents().is_empty() {
                    continue;
                }
            }
            if !fds[0].revents().is_empty() {
                return Err(ReceiveError::Woken);
            }
            let have = self.bytes.len();
            self.bytes.resize(len, 0);
            let read = read(&self.socket, &mut self.bytes[have..], &mut self.files);
            self.bytes.truncate(have + *read.as_ref().unwrap_or(&0));
            match read {
                Ok(0) => return Err(ReceiveError::Closed),
                Ok(_) | Err(ReceiveError::Io(Errno::AGAIN | Errno::INTR)) => {}
                Err(ReceiveError::Io(Errno::CONNRESET)) => return Err(ReceiveError::Closed),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Sends an answer. One that does not fit the socket's buffer is an error: a front end waits
    /// for each of them.
    pub(super) fn send(&self, message: &[u8]) -> Result<(), Errno> {
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        if send(&self.socket, message, flags)? == message.len() {
            Ok(())
        } else {
            Err(Errno::NOBUFS)
        }
    }
}

fn read(socket: &OwnedFd, to: &mut [u8], files: &mut Vec<OwnedFd>) -> Result<usize, ReceiveError> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FILES))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let received = recvmsg(
        socket.as_fd(),
        &mut [IoSliceMut::new(to)],
        &mut control,
        flags,
    )?;
    let before = files.len();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(more) = message {
            files.extend(more);
        }
    }
    let cut = received.flags.contains(ReturnFlags::CTRUNC);
    // There was space for more: the kernel had no number for the next file.
    if cut && files.len() - before < MAX_FILES {
        return Err(ReceiveError::NoFiles);
    }
    if cut || files.len() > MAX_FILES {
        return Err(ReceiveError::TooManyFiles);
    }
    Ok(received.bytes)
}
