//! A daemon that asks its privileged helper for anything.
//!
//! The input is a list of messages, a line each. A line that begins with `+` brings a file along.
//! The helper runs in an empty network namespace, where it may make one. Messages that would reach
//! out of it (other namespaces, sockets in the file system, programs) are left out.

use std::fs::File;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::process::Command;
use std::thread;

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, Shutdown, SocketFlags, SocketType, recvmsg, sendmsg, shutdown, socketpair,
};
use softnet_io::Netns;
use softnet_io::rights::{Serve, serve};

const MESSAGES: usize = 64;

/// True unless it would reach out of the namespace. Escapes may hide a word.
fn is_tame(message: &[u8]) -> bool {
    let wild = ["Listen", "Passt\"", "Pid", "Path\"", "Name\"", "\\"];
    let text = String::from_utf8_lossy(message);
    !wild.iter().any(|word| text.contains(word))
}

pub(crate) fn run(input: &[u8]) {
    let flags = SocketFlags::CLOEXEC;
    let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
    let (ours, theirs) = pair.expect("a pair of sockets");
    let null = File::open("/dev/null").expect("it is there");
    thread::scope(|scope| {
        let helper = scope.spawn(move || {
            // Without the right to make one, it has none to change anything outside.
            if let Ok(netns) = Netns::anonymous() {
                netns.enter().expect("it is new");
            } else if rustix::process::geteuid().is_root() {
                return;
            }
            let how = Serve {
                enter: false,
                again: || Command::new("false"),
            };
            // An error is the end of the connection, and no more.
            let _ = serve(theirs, how, &mut |_| false);
        });
        let replies = scope.spawn(|| {
            let mut replies: Vec<Vec<u8>> = Vec::new();
            let mut bytes = vec![0; 64 * 1024];
            loop {
                let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(253))];
                let mut control = RecvAncillaryBuffer::new(&mut space);
                let mut to = [IoSliceMut::new(&mut bytes)];
                match recvmsg(&ours, &mut to, &mut control, RecvFlags::CMSG_CLOEXEC) {
                    Ok(received) if received.bytes > 0 => {
                        replies.push(bytes[..received.bytes].to_vec());
                    }
                    _ => return replies,
                }
            }
        });
        let messages = input.split(|&byte| byte == b'\n').take(MESSAGES);
        for message in messages.filter(|message| is_tame(message)) {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            let files = [null.as_fd()];
            let message = match message.strip_prefix(b"+") {
                Some(rest) => {
                    assert!(control.push(SendAncillaryMessage::ScmRights(&files)));
                    rest
                }
                None => message,
            };
            let bytes = [IoSlice::new(message)];
            // It may be gone: an empty message is the end.
            if sendmsg(&ours, &bytes, &mut control, SendFlags::NOSIGNAL).is_err() {
                break;
            }
        }
        let _ = shutdown(&ours, Shutdown::Write);
        helper.join().expect("nothing that is asked for is its end");
        for reply in replies.join().expect("it only reads") {
            let text = String::from_utf8(reply).expect("text");
            let known = ["\"Files\"", "{\"Done\":", "{\"Refused\":"];
            assert!(known.iter().any(|start| text.starts_with(start)), "{text}");
        }
    });
}
