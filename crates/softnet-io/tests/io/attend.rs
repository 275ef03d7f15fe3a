//! A helper that is a service of its own, and who connects to it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::thread::{self, JoinHandle};

use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
};
use softnet_io::rights::attend;
use softnet_tests::wait_for;

/// The answer to a daemon that is served.
const SERVED: &str = "{\"Done\":null}";

/// A helper whose processes wait for the end of the connection, and do no more.
struct Helper {
    address: SocketAddrUnix,
    stop: UnixStream,
    thread: JoinHandle<io::Result<()>>,
}

fn socket() -> OwnedFd {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    socket_with(family, kind, SocketFlags::CLOEXEC, None).expect("a socket")
}

fn own_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

impl Helper {
    fn start(name: &str, user: u32) -> Helper {
        let name = format!("softnet-attend-{}-{name}", std::process::id());
        let address = SocketAddrUnix::new_abstract_name(name.as_bytes()).expect("a name");
        let listener = socket();
        bind(&listener, &address).expect("nobody else has it");
        listen(&listener, 64).expect("ours");
        let (stop, stopped) = UnixStream::pair().expect("a pair");
        let serve = move || {
            let process = || Command::new("cat");
            attend(listener.as_fd(), user, stopped.as_fd(), &process)
        };
        Helper {
            address,
            stop,
            thread: thread::spawn(serve),
        }
    }

    /// A connection, and what the helper said first.
    fn connect(&self) -> (OwnedFd, String) {
        let socket = socket();
        connect(&socket, &self.address).expect("it listens");
        let mut bytes = [0; 1024];
        let length = rustix::io::read(&socket, &mut bytes).expect("a message");
        let said = String::from_utf8_lossy(&bytes[..length]).into_owned();
        (socket, said)
    }

    /// Stops it: nothing that was done to it was its end.
    fn stop(self) {
        drop(self.stop);
        let ended = self.thread.join().expect("it does not panic");
        ended.expect("it listened until it was stopped");
    }
}

#[test]
fn other_users_are_refused() {
    let user = own_user() + 1;
    let helper = Helper::start("other", user);
    for _ in 0..32 {
        let (socket, said) = helper.connect();
        assert!(said.starts_with("{\"Refused\":"), "{said}");
        assert!(
            said.contains(&format!("it serves user {user} alone")),
            "{said}"
        );
        let mut rest = [0; 16];
        assert_eq!(rustix::io::read(&socket, &mut rest), Ok(0), "it is closed");
    }
    helper.stop();
}

#[test]
fn daemons_come_and_go() {
    let helper = Helper::start("many", own_user());
    // Some leave before they are served.
    for _ in 0..4 {
        let socket = socket();
        connect(&socket, &helper.address).expect("it listens");
    }
    let mut daemons = Vec::new();
    wait_for("16 places", || {
        let (socket, said) = helper.connect();
        if said == SERVED {
            daemons.push(socket);
        }
        daemons.len() == 16
    });
    let (_, said) = helper.connect();
    assert!(said.contains("it serves 16 daemons already"), "{said}");
    drop(daemons.pop());
    wait_for("a place", || helper.connect().1 == SERVED);
    // Those that are served are not touched by its end.
    helper.stop();
    let mut event = [rustix::event::PollFd::new(
        &daemons[0],
        rustix::event::PollFlags::empty(),
    )];
    let now = rustix::event::Timespec::default();
    assert_eq!(rustix::event::poll(&mut event, Some(&now)), Ok(0));
}
