//! A daemon that dies while it gives what it has to its successor: what came is kept, the rest is
//! opened anew.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use super::common::{between, pass_on};
use super::*;

/// A daemon that was killed, and its successor, which has not noticed yet.
struct Killed {
    scratch: Scratch,
    next: Running,
    /// The successor's connection, by whose end it notices.
    connection: Option<OwnedFd>,
    /// Files that came with the first message that it does not hear.
    files: Vec<OwnedFd>,
}

impl Killed {
    /// Kills a daemon when it, or its successor, says what begins with `last`, which the other does
    /// not hear. It has two stream ports and one without a device, and `engine` in its file; both
    /// have these options. `before` is called before its death, with its control socket.
    fn start(
        scratch: Scratch,
        engine: &str,
        options: &[&str],
        last: &str,
        before: impl FnOnce(&Path),
    ) -> Killed {
        let (socket, moved) = (scratch.path("s"), scratch.path("moved"));
        let port = |name: &str| {
            let path = scratch.path(name);
            format!("[[port]]\nname = {name:?}\ndriver = \"stream\"\nsocket = {path:?}\n")
        };
        let (p, q) = (port("p"), port("q"));
        let file = format!(
            "[engine]\nworkers = 1\nbuffers = 512\n{engine}\n{p}{q}[[port]]\nname = \"n\"\n\
             driver = \"null\"\n[[bridge]]\nname = \"br0\"\nports = [\"p\", \"q\"]\n"
        );
        let config = scratch.file("config.toml", &file);
        let start = |more: &[&str]| {
            let mut command = softnet();
            command.arg("run").arg(&config).args(options).args(more);
            Running::start(command.arg("--socket").arg(&socket))
        };
        let mut daemon = start(&[]);
        wait_for("the daemon", || {
            daemon.assert_running();
            ask(&socket, &["stats"]).is_ok()
        });
        fs::rename(&socket, &moved).expect("ours");
        let listener = between(&socket);
        let next = start(&["--replace"]);
        let (connection, running, files) = pass_on(&listener, &moved, last);
        before(&moved);
        drop(listener);
        // In the place of the test's.
        fs::rename(&moved, &socket).expect("ours");
        daemon.signal(Signal::KILL);
        // Waits for its end.
        drop(daemon);
        drop(running);
        Killed {
            scratch,
            next,
            connection: Some(connection),
            files,
        }
    }

    fn socket(&self) -> PathBuf {
        self.scratch.path("s")
    }

    /// Has the successor notice.
    fn notice(&mut self) {
        self.connection = None;
    }

    /// Has nobody have what the daemon had and did not give, and waits until the successor answers.
    fn answers(&mut self) {
        self.files.clear();
        let socket = self.socket();
        wait_for("the successor", || {
            self.next.assert_running();
            ask(&socket, &["stats"]).is_ok()
        });
    }

    /// Waits until a frame passes from one port to the other.
    fn frames_pass(&self) {
        let open = |name: &str| -> io::Result<UnixStream> {
            let stream = UnixStream::connect(self.scratch.path(name))?;
            stream.set_read_timeout(Some(Duration::from_millis(100)))?;
            Ok(stream)
        };
        let pass = || -> io::Result<bool> {
            let (mut p, mut q) = (open("p")?, open("q")?);
            // The first ones may come before both are up.
            for _ in 0..20 {
                p.write_all(&frame(1))?;
                if q.read_exact(&mut [0; 64]).is_ok() {
                    return Ok(true);
                }
            }
            Ok(false)
        };
        wait_for("a frame", || pass().is_ok_and(|passed| passed));
    }

    /// Ends the successor, which must be well. Returns what it noted.
    fn stop(self) -> String {
        self.next.stop()
    }
}

/// An address with this port that tests of no other process have.
fn address(port: u16) -> String {
    let [_, a, b, c] = std::process::id().to_be_bytes();
    format!("127.{}.{b}.{c}:{port}", 64 + a % 64)
}

/// Waits for metrics at a place.
fn metrics_come(place: &str) {
    fn get(mut stream: impl Read + Write) -> io::Result<String> {
        stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Ok(text)
    }
    wait_for("metrics", || {
        let got = match place.contains('/') {
            true => UnixStream::connect(place).and_then(get),
            false => TcpStream::connect(place).and_then(get),
        };
        got.is_ok_and(|text| text.contains("softnetd_"))
    });
}

/// A place for metrics, and its line in the configuration.
fn place(scratch: &Scratch, port: Option<u16>) -> (String, String) {
    let place = port.map_or_else(|| scratch.path("metrics").display().to_string(), address);
    let line = format!("metrics = {place:?}");
    (place, line)
}

#[test]
fn what_a_daemon_has_not_given_when_it_dies_is_opened_anew() {
    let rounds: [(&str, Option<u16>, &[&str]); 6] = [
        ("\"State\"", Some(29101), &[]),
        ("{\"Device\"", None, &[]),
        ("\"Control\"", Some(29102), &["--no-helper"]),
        ("\"Metrics\"", Some(29103), &[]),
        ("\"Metrics\"", None, &["--strict"]),
        ("\"End\"", None, &[]),
    ];
    for (last, port, options) in rounds {
        println!("{last}, {port:?}, {options:?}");
        let scratch = Scratch::new("dies");
        let (place, line) = place(&scratch, port);
        let mut killed = Killed::start(scratch, &line, options, last, |_| ());
        killed.files.clear();
        killed.notice();
        killed.answers();
        metrics_come(&place);
        killed.frames_pass();
        let log = killed.stop();
        let died = "the daemon before this one has died; started with what it left";
        assert!(log.contains(died), "{log}");
    }
}

/// The kernel may close what the daemon had long after it has noticed the end of its connection.
#[test]
fn what_a_dead_daemon_still_has_is_waited_for() {
    // The dead one's helper would remove the file of a port's socket, which would be free then.
    let rounds: [(&str, u16, &[&str]); 2] = [
        ("{\"Device\"", 29104, &["--strict", "--no-helper"]),
        ("\"Metrics\"", 29105, &["--strict"]),
    ];
    for (last, port, options) in rounds {
        println!("{last}, {port}, {options:?}");
        let scratch = Scratch::new("diesslowly");
        let (place, line) = place(&scratch, Some(port));
        let mut killed = Killed::start(scratch, &line, options, last, |_| ());
        killed.notice();
        // It tries in vain meanwhile, unless the machine is too busy.
        thread::sleep(Duration::from_millis(300));
        killed.answers();
        metrics_come(&place);
        killed.frames_pass();
        killed.stop();
    }
}

/// Between the successor's question and its turn clients change what runs, and have their answers.
#[test]
fn a_change_that_was_answered_before_the_daemon_dies_stays() {
    let scratch = Scratch::new("diesstate");
    let state = format!("state = {:?}", scratch.path("state"));
    let change = |socket: &Path| {
        ask(socket, &["port", "set", "n", "mtu=1400"]).expect("changed");
    };
    let mut killed = Killed::start(scratch, &state, &[], "{\"Go\"", change);
    killed.notice();
    killed.answers();
    let running = ask(&killed.socket(), &["dump-config"]).expect("shown");
    assert!(running.contains("mtu = 1400"), "{running}");
    killed.stop();
}
