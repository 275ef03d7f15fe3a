//! A daemon that takes over, and is refused when it runs already.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use crate::common::{Running, Scratch, between, pass_on, receive, send, softnet, text, wait_for};
use rustix::net::{Shutdown, shutdown};

/// A configuration with a port that leads nowhere.
const ONE_PORT: &str =
    "[engine]\nworkers = 1\nbuffers = 512\n[[port]]\nname = \"a\"\ndriver = \"null\"\n";

/// A daemon with this configuration, these options and this control socket.
fn start(config: &Path, options: &[&str], socket: &Path) -> Running {
    let mut command = softnet();
    command.arg("run").arg(config).args(options);
    Running::start(command.arg("--socket").arg(socket))
}

/// A device belongs to one of the two: the daemon opens its own only when the successor that it
/// has refused is gone.
#[test]
fn a_daemon_goes_on_when_the_refused_successor_has_ended() {
    let scratch = Scratch::new("refusedends");
    let (place, socket) = (scratch.path("between"), scratch.path("s"));
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
    let mut daemon = start(&config, &[], &socket);
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
    let listener = between(&place);
    let next = start(&config, &["--replace"], &place);
    let (successor, running, _) = pass_on(&listener, &socket, "\"End\"");
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
    let ask = |words: &str| {
        let mut command = softnet();
        command.arg("--socket").arg(&socket);
        let output = command.args(words.split(' ')).output();
        output.expect("softnet").status.success()
    };
    let mut daemon = start(&config, &[], &socket);
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
    let place = scratch.path("between");
    let listener = between(&place);
    let next = start(&config, &["--replace"], &place);
    // It is refused, as by a daemon that has waited for too long.
    let (successor, running, _) = pass_on(&listener, &socket, "\"Running\"");
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

/// No client has an answer that is forgotten with a successor that is refused: who comes meanwhile
/// waits, and the daemon answers.
#[test]
fn clients_wait_until_it_is_known_which_daemon_goes_on() {
    let scratch = Scratch::new("refusedasks");
    let (place, socket) = (scratch.path("between"), scratch.path("s"));
    let config = scratch.file("config.toml", ONE_PORT);
    let client = |words: &str| {
        let mut command = softnet();
        command.arg("--socket").arg(&socket).args(words.split(' '));
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("softnet")
    };
    let ask = |words: &str| client(words).wait_with_output().expect("softnet");
    let mut daemon = start(&config, &[], &socket);
    wait_for("the daemon", || {
        daemon.assert_running();
        ask("stats").status.success()
    });
    let listener = between(&place);
    let next = start(&config, &["--replace"], &place);
    let (successor, running, _) = pass_on(&listener, &socket, "\"Running\"");
    let mut waits = client("port set a mtu=1400");
    for _ in 0..50 {
        let ended = waits.try_wait().expect("softnet");
        assert!(ended.is_none(), "the successor has answered");
        thread::sleep(Duration::from_millis(10));
    }
    send(&successor, br#"{"Refused":"too late"}"#, &[]);
    drop((successor, running));
    let output = next.finish();
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let output = waits.wait_with_output().expect("softnet");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let shown = ask("dump-config");
    let shown = text(&shown.stdout);
    assert!(shown.contains("mtu = 1400"), "{shown}");
    daemon.stop();
}

/// The successor may be gone by when the daemon, which had no CPU, reads that it runs.
#[test]
fn a_daemon_goes_on_when_the_successor_is_gone_that_ran() {
    let scratch = Scratch::new("ranbefore");
    let (place, socket) = (scratch.path("between"), scratch.path("s"));
    let config = scratch.file("config.toml", ONE_PORT);
    let answers = || {
        let mut command = softnet();
        let output = command.arg("--socket").arg(&socket).arg("stats").output();
        output.expect("softnet").status.success()
    };
    let mut daemon = start(&config, &[], &socket);
    wait_for("the daemon", || {
        daemon.assert_running();
        answers()
    });
    let listener = between(&place);
    let next = start(&config, &["--replace"], &place);
    let (successor, running, _) = pass_on(&listener, &socket, "\"Running\"");
    // Nobody hears the daemon any more.
    shutdown(&running, Shutdown::Read).expect("a socket");
    send(&running, b"\"Running\"", &[]);
    send(&successor, br#"{"Refused":"too late"}"#, &[]);
    let output = next.finish();
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    drop((successor, running));
    wait_for("its answer", || {
        daemon.assert_running();
        answers()
    });
    let log = daemon.stop();
    assert!(log.contains("not replaced: "), "{log}");
}
