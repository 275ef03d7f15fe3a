//! `softnet run` with many ports: none of their devices is left when it ends, whichever way, and
//! those of others are.

use std::fmt::Write;

use crate::common::{
    NamedNetns, Running, Scratch, has_program, may_make_networks, softnet, text, wait_for,
};
use rustix::process::Signal;

/// Ports in one namespace, and in one of their own each.
const TOGETHER: usize = 180;
const APART: usize = 20;
/// Ports that come or go while one waits: all of them may take longer than that on a slow machine.
const STEP: usize = 20;

struct Setup {
    together: NamedNetns,
    apart: Vec<NamedNetns>,
}

impl Setup {
    /// With a device of somebody else beside those to come, in the group that devices are in
    /// unless somebody says otherwise.
    fn new(tag: &str) -> Setup {
        let together = NamedNetns::new(tag);
        together.ip(&[
            "link", "add", "other", "type", "veth", "peer", "name", "peer",
        ]);
        let apart = (0..APART).map(|n| NamedNetns::new(&format!("{tag}{n}")));
        Setup {
            apart: apart.collect(),
            together,
        }
    }

    fn config(&self) -> String {
        let mut text = "[engine]\nworkers = 2\n".to_owned();
        let mut names = Vec::new();
        let together = std::iter::repeat_n(&self.together, TOGETHER);
        for (n, netns) in together.chain(&self.apart).enumerate() {
            let netns = &netns.name;
            let port = format!("[[port]]\nname = \"p{n}\"\ndriver = \"tap\"\nnetns = {netns:?}\n");
            text.push_str(&port);
            names.push(format!("p{n}"));
        }
        writeln!(text, "[[bridge]]\nname = \"br0\"\nports = {names:?}").unwrap();
        text
    }

    /// Number of our devices that there are. That of somebody else is there.
    fn devices(&self) -> usize {
        let together = self.together.interfaces();
        assert!(together.contains("other") && together.contains("peer"));
        let ours = |netns: &NamedNetns| {
            let interfaces = netns.interfaces();
            interfaces
                .iter()
                .filter(|name| name.starts_with('p') && *name != "peer")
                .count()
        };
        ours(&self.together) + self.apart.iter().map(ours).sum::<usize>()
    }
}

#[test]
fn a_stop_a_reload_and_a_start_that_fails_leave_no_device() {
    if !may_make_networks() || !has_program("ip") {
        return;
    }
    let setup = Setup::new("many");
    let scratch = Scratch::new("many");
    let config = scratch.file("many.toml", &setup.config());
    let mut command = softnet();
    let socket = scratch.path("control.sock");
    let mut running = Running::start(command.arg("run").arg(&config).arg("--socket").arg(&socket));
    for ports in (STEP..=TOGETHER + APART).step_by(STEP) {
        wait_for("more ports", || {
            running.assert_running();
            socket.exists() && setup.devices() >= ports
        });
    }
    let reload = || {
        let output = softnet()
            .arg("reload")
            .arg("--socket")
            .arg(&socket)
            .output();
        let output = output.expect("softnet reload");
        assert!(output.status.success(), "{}", text(&output.stderr));
    };
    scratch.file("many.toml", "[engine]\nworkers = 2\n");
    reload();
    assert_eq!(setup.devices(), 0);
    scratch.file("many.toml", &setup.config());
    reload();
    assert_eq!(setup.devices(), TOGETHER + APART);
    running.signal(Signal::TERM);
    for left in (0..TOGETHER + APART).step_by(STEP).rev() {
        wait_for("ports to go", || setup.devices() <= left);
    }
    let output = running.finish();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(setup.devices(), 0);

    // The last device of the list cannot be made: its name is taken.
    let last = setup.apart.last().unwrap();
    let taken = format!("p{}", TOGETHER + APART - 1);
    last.ip(&["link", "add", &taken, "type", "veth", "peer", "name", "end"]);
    let output = softnet().arg("run").arg("--strict").arg(&config).output();
    let output = output.expect("softnet run");
    assert!(!output.status.success());
    let why = text(&output.stderr);
    assert!(why.contains("exists already"), "{why}");
    assert_eq!(setup.devices(), 1, "only the one that is somebody else's");
}
