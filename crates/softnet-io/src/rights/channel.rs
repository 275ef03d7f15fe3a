//! Messages with files over a `SOCK_SEQPACKET` socket, both ways.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg,
    sendmsg, socketpair,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Longest message, in bytes.
const LONGEST: usize = 64 * 1024;
/// Files with one message (the kernel's limit is 253).
pub const FILES: usize = 250;

/// One end.
#[derive(Debug)]
pub struct Channel(pub(super) OwnedFd);

impl From<OwnedFd> for Channel {
    /// A connected socket of that type.
    fn from(socket: OwnedFd) -> Channel {
        Channel(socket)
    }
}

impl Channel {
    /// Both ends.
    pub(super) fn pair() -> io::Result<(Channel, Channel)> {
        let flags = SocketFlags::CLOEXEC;
        let (one, other) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        Ok((Channel(one), Channel(other)))
    }

    /// Sends one message. Waits for room unless `flags` say otherwise.
    ///
    /// # Errors
    /// If it is too long, has more than [`FILES`] files, or the connection is at its end.
    pub fn send(
        &self,
        message: &impl Serialize,
        files: &[BorrowedFd<'_>],
        flags: SendFlags,
    ) -> io::Result<()> {
        let bytes = serde_json::to_vec(message)?;
        if bytes.len() > LONGEST || files.len() > FILES {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !files.is_empty() && !control.push(SendAncillaryMessage::ScmRights(files)) {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        let bytes = [IoSlice::new(&bytes)];
        let flags = SendFlags::NOSIGNAL | flags;
        rustix::io::retry_on_intr(|| sendmsg(&self.0, &bytes, &mut control, flags))?;
        Ok(())
    }

    /// The next message; `None` at the end of the connection.
    ///
    /// # Errors
    /// If it is no such message, no file descriptors are left, or the connection fails.
    pub fn receive<M: DeserializeOwned>(&self) -> io::Result<Option<(M, Vec<OwnedFd>)>> {
        let Some((bytes, files)) = self.receive_bytes()? else {
            return Ok(None);
        };
        Ok(Some((serde_json::from_slice(&bytes)?, files)))
    }

    /// The next message unread. It has at least a byte.
    pub(super) fn receive_bytes(&self) -> io::Result<Option<(Vec<u8>, Vec<OwnedFd>)>> {
        let mut bytes = vec![0; LONGEST];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(253))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received = loop {
            let mut to = [IoSliceMut::new(&mut bytes)];
            match recvmsg(&self.0, &mut to, &mut control, RecvFlags::CMSG_CLOEXEC) {
                Ok(received) => break received,
                Err(Errno::INTR) => {}
                Err(Errno::CONNRESET) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        };
        let mut files = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(some) = message {
                files.extend(some);
            }
        }
        if received.bytes == 0 {
            return Ok(None);
        }
        if received.flags.contains(ReturnFlags::CTRUNC) {
            let text = "no file descriptors are left (RLIMIT_NOFILE)";
            return Err(io::Error::other(text));
        }
        if received.flags.contains(ReturnFlags::TRUNC) {
            return Err(io::Error::from(io::ErrorKind::InvalidData));
        }
        bytes.truncate(received.bytes);
        Ok(Some((bytes, files)))
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
