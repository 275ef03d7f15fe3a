//! A test between a daemon and its successor: it passes on what they say, as far as it wants to.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind,
    connect, listen, recvmsg, sendmsg, socket_with,
};

/// A socket as daemons have them for clients.
fn control_socket() -> OwnedFd {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    socket_with(family, kind, SocketFlags::CLOEXEC, None).expect("a socket")
}

/// Which of these can be read; waits for one.
fn readable(files: &[&OwnedFd]) -> Vec<bool> {
    let wait = Timespec {
        tv_sec: 30,
        tv_nsec: 0,
    };
    let mut files: Vec<_> = files
        .iter()
        .map(|file| PollFd::new(file, PollFlags::IN))
        .collect();
    let ready = poll(&mut files, Some(&wait)).expect("they are open");
    assert_ne!(ready, 0, "nothing came");
    let files = files.iter();
    files.map(|file| !file.revents().is_empty()).collect()
}

/// Takes a message with its files.
pub(crate) fn receive(from: &OwnedFd) -> (Vec<u8>, Vec<OwnedFd>) {
    let mut bytes = vec![0; 256 * 1024];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(250))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = recvmsg(
        from,
        &mut [IoSliceMut::new(&mut bytes)],
        &mut control,
        RecvFlags::CMSG_CLOEXEC,
    );
    let length = received.expect("it is open").bytes;
    let mut files = Vec::new();
    for part in control.drain() {
        if let RecvAncillaryMessage::ScmRights(some) = part {
            files.extend(some);
        }
    }
    assert_ne!(length, 0, "it goes on");
    bytes.truncate(length);
    (bytes, files)
}

/// Sends a message with files.
pub(crate) fn send(to: &OwnedFd, bytes: &[u8], files: &[OwnedFd]) {
    let files: Vec<_> = files.iter().map(AsFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(250))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(files.is_empty() || control.push(SendAncillaryMessage::ScmRights(&files)));
    let bytes = [IoSlice::new(bytes)];
    sendmsg(to, &bytes, &mut control, SendFlags::NOSIGNAL).expect("it is open");
}

/// Listens where a successor is to connect, at a path that is free.
pub(crate) fn between(path: &Path) -> OwnedFd {
    let listener = control_socket();
    let address = SocketAddrUnix::new(path).expect("a path");
    bind(&listener, &address).expect("the name is free");
    listen(&listener, 1).expect("a socket");
    listener
}

/// Passes on what a successor that connects here and the daemon at `path` say to each other, until
/// one says what begins with `last`, which the other does not hear. Returns the successor's
/// connection, the daemon's, and the files that came with the last.
pub(crate) fn pass_on(
    listener: &OwnedFd,
    path: &Path,
    last: &str,
) -> (OwnedFd, OwnedFd, Vec<OwnedFd>) {
    readable(&[listener]);
    let successor = accept_with(listener, SocketFlags::CLOEXEC).expect("it connects");
    let daemon = control_socket();
    let address = SocketAddrUnix::new(path).expect("a path");
    connect(&daemon, &address).expect("it runs");
    loop {
        let ready = readable(&[&successor, &daemon]);
        if ready[0] {
            let (bytes, files) = receive(&successor);
            if bytes.starts_with(last.as_bytes()) {
                return (successor, daemon, files);
            }
            send(&daemon, &bytes, &files);
        }
        if ready[1] {
            let (bytes, files) = receive(&daemon);
            if bytes.starts_with(last.as_bytes()) {
                return (successor, daemon, files);
            }
            send(&successor, &bytes, &files);
        }
    }
}
