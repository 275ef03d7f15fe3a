//! `softnet exec` with the daemon itself.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

use super::{CLIENT, assert_refused, exec};
use crate::common::{Daemon, Scratch, has_program, text};

#[test]
fn ip_shows_and_changes_what_the_daemon_has() {
    if !has_program("ip") || !has_program("tc") {
        return;
    }
    let scratch = Scratch::new("real");
    let config = "[[port]]\nname = \"p0\"\ndriver = \"null\"\n\
        [[bridge]]\nname = \"br0\"\nports = [\"p0\"]\n";
    let daemon = Daemon::start(&scratch, config);
    let socket = daemon.socket.clone();
    let run = |program: &[&str]| exec(&socket, program).output().expect("softnet");
    let ip = |arguments: &[&str]| {
        let output = run(&[&["ip"], arguments].concat());
        assert_eq!(text(&output.stderr), "", "{arguments:?}");
        text(&output.stdout)
    };
    assert_eq!(ip(&["link", "set", "dev", "p0", "mtu", "1400"]), "");
    let shown = ip(&["-o", "link", "show"]);
    let (bridge, port) = shown.split_once('\n').expect("two lines");
    assert!(bridge.starts_with("1: br0:"), "{bridge}");
    assert!(
        port.starts_with("2: p0:") && port.contains("mtu 1400 ") && port.contains("master br0")
    );
    assert!(shown.contains("3: lo:"), "{shown}");
    // The host's interfaces are not ours.
    let output = run(&["tc", "qdisc", "add", "dev", "eth0", "root", "pfifo"]);
    assert_refused(&output, 1, "Cannot find device \"eth0\"");
    daemon.stop();
    let output = run(&["ip", "link", "show"]);
    assert_refused(&output, 125, "no daemon can be reached");
}

/// The first line that a program prints.
fn first_line(program: &mut Child) -> String {
    let mut line = String::new();
    let said = program.stdout.take().expect("captured");
    BufReader::new(said).read_line(&mut line).expect("a line");
    line
}

/// A daemon with one port.
fn one_port(scratch: &Scratch) -> Daemon {
    Daemon::start(scratch, "[[port]]\nname = \"p0\"\ndriver = \"null\"\n")
}

/// Names of sockets are of a network namespace, of which each program has its own: two of them can
/// want one port, as with the same process id in two containers.
#[test]
fn a_port_that_another_namespace_has_is_replaced() {
    if !has_program("python3") {
        return;
    }
    let scratch = Scratch::new("taken");
    let daemon = one_port(&scratch);
    let socket = daemon.socket.clone();
    // Its process id is known before it is the program.
    let client = exec(&socket, &["python3", CLIENT, "taken"]);
    let mut waiting = Command::new("sh");
    waiting.args(["-c", "read go; exec \"$@\"", "sh"]);
    waiting.arg(client.get_program()).args(client.get_args());
    waiting.stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut waiting = waiting.spawn().expect("sh");
    let mut held = exec(
        &socket,
        &["python3", CLIENT, "hold", &waiting.id().to_string()],
    );
    let held = held.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut held = held.expect("softnet");
    let line = first_line(&mut held);
    assert_eq!(line, "held\n");
    let mut go = waiting.stdin.take().expect("a pipe");
    go.write_all(b"go\n").expect("it waits");
    drop(go);
    let output = waiting.wait_with_output().expect("the program");
    assert!(output.status.success(), "{}", text(&output.stderr));
    drop(held.stdin.take());
    assert!(held.wait().expect("the program").success());
    daemon.stop();
}

/// An event loop looks at its socket before the program binds it, as pyroute2 has it.
#[test]
fn an_event_loop_hears_of_links() {
    if !has_program("python3") || !has_program("ip") {
        return;
    }
    let scratch = Scratch::new("hear");
    let daemon = one_port(&scratch);
    let socket = daemon.socket.clone();
    let mut hears = exec(&socket, &["python3", CLIENT, "hear"]);
    let hears = hears.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut hears = hears.expect("softnet");
    let line = first_line(&mut hears);
    assert_eq!(line, "ready\n");
    for change in [&["add", "v0", "type", "dummy"][..], &["del", "v0"]] {
        let output = exec(&socket, &[&["ip", "link"], change].concat()).output();
        let output = output.expect("softnet");
        assert!(output.status.success(), "{}", text(&output.stderr));
    }
    let output = hears.wait_with_output().expect("the program");
    assert!(output.status.success(), "{}", text(&output.stderr));
    daemon.stop();
}
