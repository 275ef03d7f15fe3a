//! A client's socket: who is at its other end, and what is sent there.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, Shutdown, SocketAddrAny,
    SocketAddrUnix, recv, send, sendmsg, shutdown,
};
use softnet_io::PeerCredentials;

use super::{PORT_NAME, answer};
use crate::nl;

/// The state belongs to root, and to the user that the server runs as.
pub(super) fn is_own(peer: &PeerCredentials) -> bool {
    peer.uid == 0 || peer.uid == rustix::process::geteuid().as_raw()
}

/// It belongs to a group, too.
pub(super) fn is_member(peer: &PeerCredentials, group: Option<u32>) -> bool {
    group.is_some_and(|group| peer.gid == group || peer.groups.contains(&group))
}

/// True if the other end is closed.
pub(super) fn has_hung_up(socket: &OwnedFd) -> bool {
    let mut file = [PollFd::new(socket, PollFlags::empty())];
    let now = Timespec::default();
    poll(&mut file, Some(&now)).is_ok() && file[0].revents().contains(PollFlags::HUP)
}

/// Tells a client why it is not let in. What it has sent is taken first: closing a socket with
/// unread data has the peer's next call fail (`ECONNRESET`) in place of the answer.
pub(super) fn refuse(socket: &OwnedFd, error: &nl::Error) {
    // If a call fails, the end of the connection says enough.
    let _ = shutdown(socket, Shutdown::Read);
    let mut rest = [0; 1];
    while recv(socket, &mut rest, RecvFlags::TRUNC | RecvFlags::DONTWAIT)
        .is_ok_and(|(_, length)| length > 0)
    {}
    let _ = send(
        socket,
        answer::refuse(error).as_bytes(),
        SendFlags::NOSIGNAL,
    );
}

/// The port id in the name that a client's socket is bound to.
pub(super) fn port_of(address: &SocketAddrAny) -> Option<u32> {
    let address = SocketAddrUnix::try_from(address.clone()).ok()?;
    let name = std::str::from_utf8(address.abstract_name()?).ok()?;
    let digits = name.strip_prefix(PORT_NAME)?;
    let port: u32 = digits.parse().ok()?;
    // A number has one name, or two clients could have it.
    (port.to_string() == digits).then_some(port)
}

/// Sends a datagram, and a file with it. Waits for nobody.
pub(super) fn send_with(
    socket: &OwnedFd,
    datagram: &[u8],
    file: Option<BorrowedFd<'_>>,
) -> Result<(), Errno> {
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    let Some(file) = file else {
        return send(socket, datagram, flags).map(drop);
    };
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let files = [file];
    control.push(SendAncillaryMessage::ScmRights(&files));
    sendmsg(socket, &[IoSlice::new(datagram)], &mut control, flags).map(drop)
}
