//! A daemon that takes over, and is refused when it runs already.

mod common;

use std::fs;
use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use common::{Running, Scratch, softnet, text, wait_for};
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
/// one says `last`, which the other does not hear. Returns the connections of both.
fn pass_on(listener: &OwnedFd, path: &Path, last: &[u8]) -> (OwnedFd, OwnedFd) {
    readable(&[listener]);
    let successor = accept_with(listener, SocketFlags::CLOEXEC).expect("it connects");
    let daemon = control_socket();
    let address = SocketAddrUnix::new(path).expect("a path");
    connect(&daemon, &address).expect("it runs");
    loop {
        let ready = readable(&[&successor, &daemon]);
        if ready[0] {
            let (bytes, files) = receive(&successor);
            if bytes == last {
                return (successor, daemon);
            }
            send(&daemon, &bytes, &files);
        }
        if ready[1] {
            let (bytes, files) = receive(&daemon);
            if bytes == last {
                return (successor, daemon);
            }
            send(&successor, &bytes, &files);
        }
    }
}

/// A device belongs to one of the two: the daemon opens its own only when the successor that it
/// has refused is gone.
#[test]
fn a_daemon_goes_on_when_the_refused_successor_has_ended() {
    let scratch = Scratch::new("refusedends");
    let (between, listener, socket) =
        (scratch.path("between"), control_socket(), scratch.path("s"));
    let port = |name: &str| {
        let path = scratch.path(name);
        format!("[[port]]\nname = {name:?}\ndriver = \"stream\"\nsocket = {path:?}\n")
    };
    let (p, q) = (port("p"), port("q"));
    let file = format!(
        "[engine]\nworkers = 1\nbuffers = 512\n{p}{q}[[bridge]]\nname = \"br0\"\n\
         ports = [\"p\", \"q\"]\n"
    );
    let config = scratch.file("config.toml", &file);
    let start = |options: &[&str], socket: &Path| {
        let mut command = softnet();
        command.arg("run").arg(&config).args(options);
        Running::start(command.arg("--socket").arg(socket))
    };
    let mut daemon = start(&[], &socket);
    let connect = |daemon: &mut Running, name: &str| {
        let mut stream = None;
        wait_for("the port", || {
            daemon.assert_running();
            stream = UnixStream::connect(scratch.path(name)).ok();
            stream.is_some()
        });
        stream.expect("it listens")
    };
    let (mut p, mut q) = (connect(&mut daemon, "p"), connect(&mut daemon, "q"));
    let short = Some(Duration::from_millis(300));
    q.set_read_timeout(short).expect("a socket");
    // To all, from one; behind its length.
    let mut frame = 60_u32.to_be_bytes().to_vec();
    frame.extend([[0xff_u8; 6], [2, 0, 0, 0, 0, 7], [0x88, 0xb5, 0, 0, 0, 0]].concat());
    frame.resize(64, 7);
    let mut got = [0; 64];
    wait_for("the first frame", || {
        p.write_all(&frame).expect("it reads");
        q.read_exact(&mut got).is_ok()
    });
    while q.read_exact(&mut got).is_ok() {}
    let address = SocketAddrUnix::new(between.as_path()).expect("a path");
    bind(&listener, &address).expect("the name is free");
    listen(&listener, 1).expect("a socket");
    let next = start(&["--replace"], &between);
    let (successor, running) = pass_on(&listener, &socket, b"\"End\"");
    // To the daemon the successor fails; it has all devices, and waits for the end.
    send(&running, b"\"Yours\"", &[]);
    let (said, _) = receive(&running);
    assert!(text(&said).contains("Refused"), "{}", text(&said));
    // What was on its way.
    while q.read_exact(&mut got).is_ok() {}
    p.write_all(&frame).expect("the socket has space");
    let early = q.read_exact(&mut got);
    assert!(early.is_err(), "the daemon has opened its devices");
    // The successor is told, and ends; then the daemon goes on.
    send(&successor, &said, &[]);
    let output = next.finish();
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    drop((successor, running));
    // The one that waits may be received before there is `q` again.
    wait_for("the frame", || {
        p.write_all(&frame).expect("it reads");
        q.read_exact(&mut got).is_ok()
    });
    assert_eq!(got, *frame);
    let log = daemon.stop();
    assert!(log.contains("not replaced: the successor failed"), "{log}");
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
    // It is refused, as by a daemon that has waited for too long.
    let (successor, running) = pass_on(&listener, &socket, b"\"Running\"");
    send(&successor, br#"{"Refused":"too late"}"#, &[]);
    drop((successor, running));
    let output = next.finish();
    let log = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{log}");
    assert!(log.contains("goes on: too late"), "{log}");
    assert_eq!(saved(), before);
    wait_for("its answer", || ask("stats"));
    daemon.stop();
}
