//! A daemon that was killed: its devices are in the store.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::process::Stdio;

use super::*;

/// The files that a daemon has had kept, by name, as systemd keeps them.
#[derive(Default)]
struct Kept(Vec<(String, OwnedFd)>);

impl Kept {
    /// Does what a message asks for. False: it asks for nothing.
    fn follow(&mut self, socket: &UnixDatagram) -> bool {
        use std::io::IoSliceMut;
        use std::mem::MaybeUninit;

        use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

        let mut bytes = [0; 1024];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(250))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received = recvmsg(
            socket,
            &mut [IoSliceMut::new(&mut bytes)],
            &mut control,
            RecvFlags::CMSG_CLOEXEC,
        );
        let Ok(received) = received else { return false };
        let message = text(&bytes[..received.bytes]);
        let name = message
            .lines()
            .find_map(|line| line.strip_prefix("FDNAME="));
        let name = name.unwrap_or_default().to_owned();
        if message.contains("FDSTOREREMOVE=1") {
            self.0.retain(|(known, _)| *known != name);
        } else if message.contains("FDSTORE=1") {
            for part in control.drain() {
                if let RecvAncillaryMessage::ScmRights(files) = part {
                    self.0.extend(files.map(|file| (name.clone(), file)));
                }
            }
        }
        true
    }
}

#[test]
fn a_daemon_that_was_killed_finds_its_devices_in_the_store() {
    if !may_make_networks() {
        return;
    }
    let scratch = Scratch::new("storestate");
    let state = scratch.path("state");
    let place = Place::new("store", &format!("state = {state:?}"), "");
    let path = place.scratch.path("notify");
    let socket = UnixDatagram::bind(&path).expect("ours");
    socket
        .set_read_timeout(Some(Duration::from_millis(100)))
        .expect("a socket");
    let mut daemon = Running::start(place.command(&[]).env("NOTIFY_SOCKET", &path));
    let mut kept = Kept::default();
    let names = |kept: &Kept| {
        let mut names: Vec<String> = kept.0.iter().map(|(name, _)| name.clone()).collect();
        names.sort();
        names
    };
    let all = ["port-eth-a", "port-eth-a", "port-eth-b"];
    wait_for("the files", || {
        daemon.assert_running();
        kept.follow(&socket);
        names(&kept) == all
    });
    place.ping();
    // A change is in the state, which is written before it is answered.
    place.ask("port set eth-b mtu=1300").expect("changed");
    let carriers = place.carriers();
    daemon.signal(Signal::KILL);
    drop(daemon);
    kept.0.sort_by(|one, other| one.0.cmp(&other.0));
    // The files as the standard ones of a shell, which moves them.
    let mut files = std::mem::take(&mut kept.0).into_iter();
    let mut file = || Stdio::from(files.next().expect("three files").1);
    let mut command = Command::new("bash");
    let line = "exec 3<&0 4<&1 5<&2 0</dev/null 1>/dev/null 2>\"$LOG\"; LISTEN_PID=$$ exec \"$@\"";
    command.args(["-c", line, "bash", env!("CARGO_BIN_EXE_softnet"), "run"]);
    command
        .arg(place.scratch.path("config.toml"))
        .arg("--socket");
    command.arg(place.scratch.path("s"));
    command.env("LISTEN_FDS", "3").env("NOTIFY_SOCKET", &path);
    command.env("LOG", place.scratch.path("log"));
    command.env("LISTEN_FDNAMES", all.join(":"));
    command
        .stdin(file())
        .stdout(file())
        .stderr(file())
        .process_group(0);
    let mut child = command.spawn().expect("bash");
    drop(command);
    wait_for("the daemon", || place.ask("stats").is_ok());
    place.ping();
    assert_eq!(
        place.carriers(),
        carriers,
        "the devices are those that were"
    );
    let shown = text(&place.at(1, "ip link show eth-b").stdout);
    assert!(shown.contains("mtu 1300"), "{shown}");
    wait_for("the files", || {
        kept.follow(&socket);
        names(&kept) == all
    });
    // They are kept by the name that the port has.
    let renamed = place.ask("ip link set dev eth-b name eth-c");
    renamed.expect("renamed");
    wait_for("the other name", || {
        kept.follow(&socket);
        names(&kept) == ["port-eth-a", "port-eth-a", "port-eth-c"]
    });
    // A port that goes is not kept.
    place.ask("port del eth-c").expect("removed");
    wait_for("their end", || {
        kept.follow(&socket);
        names(&kept) == all[..2]
    });
    drop(kept);
    // A program that another test starts has our files for a moment, until it is that program.
    wait_for("the end of its device", || {
        !place.hosts[1].interfaces().contains("eth-b")
    });
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, Signal::TERM).expect("it runs");
    let status = child.wait().expect("its end");
    let log = fs::read_to_string(place.scratch.path("log")).unwrap_or_default();
    assert_eq!(status.code(), Some(0), "{log}");
}
