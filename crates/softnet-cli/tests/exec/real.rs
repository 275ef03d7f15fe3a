//! `softnet exec` with the daemon itself.

use rustix::process::Signal;

use super::{assert_refused, exec};
use crate::common::{Running, Scratch, has_program, softnet, text, wait_for};

#[test]
fn ip_shows_and_changes_what_the_daemon_has() {
    if !has_program("ip") || !has_program("tc") {
        return;
    }
    let scratch = Scratch::new("real");
    let socket = scratch.path("socket");
    let config = format!(
        "[engine]\nsocket = {socket:?}\n[[port]]\nname = \"p0\"\ndriver = \"null\"\n\
         [[bridge]]\nname = \"br0\"\nports = [\"p0\"]\n"
    );
    let config = scratch.file("run.toml", &config);
    let mut daemon = Running::start(softnet().arg("run").arg(config));
    let run = |program: &[&str]| exec(&socket, program).output().expect("softnet");
    wait_for("the daemon's port", || {
        daemon.assert_running();
        run(&["ip", "link", "show", "p0"]).status.success()
    });
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
    // The host's first interface is not ours.
    let output = run(&["tc", "qdisc", "add", "dev", "lo", "root", "pfifo"]);
    assert_refused(&output, 1, "Cannot find device \"lo\"");
    daemon.signal(Signal::TERM);
    assert!(daemon.finish().status.success());
    let output = run(&["ip", "link", "show"]);
    assert_refused(&output, 125, "no daemon can be reached");
}
