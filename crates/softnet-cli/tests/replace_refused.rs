//! A daemon that takes over, and is refused when it runs already.

mod common;

use std::fs;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use common::{Running, Scratch, softnet, text, wait_for};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind,
    connect, listen, recvmsg, sendmsg, socket_with,
};
use rustix::process::Signal;

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
fn receive(from: &OwnedFd) -> (Vec<u8>, Vec<OwnedFd>) {
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

fn send(to: &OwnedFd, bytes: &[u8], files: &[OwnedFd]) {
    let files: Vec<_> = files.iter().map(AsFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(250))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(files.is_empty() || control.push(SendAncillaryMessage::ScmRights(&files)));
    let bytes = [IoSlice::new(bytes)];
    sendmsg(to, &bytes, &mut control, SendFlags::NOSIGNAL).expect("it is open");
}

/// Passes on what a successor that connects here and the daemon at `path` say to each other, until
/// the successor runs: it is refused then, as by a daemon that has waited for too long.
fn refuse_at_the_end(listener: &OwnedFd, path: &Path) {
    readable(&[listener]);
    let successor = accept_with(listener, SocketFlags::CLOEXEC).expect("it connects");
    let daemon = control_socket();
    let address = SocketAddrUnix::new(path).expect("a path");
    connect(&daemon, &address).expect("it runs");
    loop {
        let ready = readable(&[&successor, &daemon]);
        if ready[0] {
            let (bytes, files) = receive(&successor);
            if bytes == b"\"Running\"" {
                return send(&successor, br#"{"Refused":"too late"}"#, &[]);
            }
            send(&daemon, &bytes, &files);
        }
        if ready[1] {
            let (bytes, files) = receive(&daemon);
            send(&successor, &bytes, &files);
        }
    }
}

/// The state's file is still that of the daemon, which may have written it by then.
#[test]
fn a_successor_that_is_refused_writes_no_state() {
    let scratch = Scratch::new("refused");
    let (state, socket) = (scratch.path("state"), scratch.path("s"));
    let port = |name: &str| format!("[[port]]\nname = {name:?}\ndriver = \"null\"\n");
    let engine = format!("[engine]\nworkers = 1\nbuffers = 512\nstate = {state:?}\n");
    let config = scratch.file("config.toml", &(engine.clone() + &port("a")));
    let start = |options: &[&str], socket: &Path| {
        let mut command = softnet();
        command.arg("run").arg(&config).args(options);
        Running::start(command.arg("--socket").arg(socket))
    };
    let ask = |words: &str| {
        let mut command = softnet();
        command.arg("--socket").arg(&socket);
        let output = command.args(words.split(' ')).output();
        output.expect("softnet").status.success()
    };
    let mut daemon = start(&[], &socket);
    wait_for("the daemon", || {
        daemon.assert_running();
        ask("stats")
    });
    // It is written before it is answered.
    assert!(ask("port set a mtu=1400"));
    let saved = || fs::read_to_string(&state).expect("the state");
    let before = saved();
    // The successor's own state is another.
    scratch.file("config.toml", &(engine + &port("a") + &port("b")));
    let (between, listener) = (scratch.path("between"), control_socket());
    let address = SocketAddrUnix::new(between.as_path()).expect("a path");
    bind(&listener, &address).expect("the name is free");
    listen(&listener, 1).expect("a socket");
    let next = start(&["--replace"], &between);
    refuse_at_the_end(&listener, &socket);
    let output = next.finish();
    let log = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{log}");
    assert!(log.contains("goes on: too late"), "{log}");
    assert_eq!(saved(), before);
    wait_for("its answer", || ask("stats"));
    daemon.signal(Signal::TERM);
    let output = daemon.finish();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}
